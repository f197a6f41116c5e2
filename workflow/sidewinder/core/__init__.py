"""The core: pure decisions. Events in, instructions out; no I/O, no clock, no randomness of its own."""
