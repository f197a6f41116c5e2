"""Transports: how bytes get to the agent on a device. Nothing here knows workloads or decides anything."""

from .registry import open

__all__ = ["open"]
