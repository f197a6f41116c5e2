"""Report: rendering only, from what lies on disk."""
