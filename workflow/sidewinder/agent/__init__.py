"""Agent: what runs on a device. Standard library only, Python 3.7 and newer, shipped as one source."""
