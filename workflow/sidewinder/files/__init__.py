"""Files: the truth on disk. Only this room writes results."""
