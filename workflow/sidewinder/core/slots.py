"""A slot: one place on a device in which a run may be; each is a lock of its own on the device."""

from __future__ import annotations


class Slots:
    """The free slots of one device, numbered 0 … capacity-1."""

    __slots__ = ("_capacity", "free")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.free = list(range(capacity - 1, -1, -1))  # a stack: slot 0 first, the last one left is warm

    def __len__(self) -> int:
        return self._capacity
