"""Sidewinder: sweeps of measurements pinned to the machines of a lab."""

__version__ = "0.1.0"
