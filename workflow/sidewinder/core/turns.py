"""A turn: the right to use silicon that several devices share (M-112, M-113).

Members of a resource group take turns, round robin, at most as many at once as the tightest limit that any of them
declares. A member with nothing to do, or that is down, is passed over; one that joins late joins at the back. An
attempt that may still run somewhere keeps its turn (``stragglers``), and who asks about it uses that one.
"""

from __future__ import annotations

from sidewinder.core.lane import Lane


class Group:
    __slots__ = ("_declared", "_members", "held", "is_shared", "is_tight", "limit", "name", "room")

    def __init__(self, name: str | None) -> None:
        self.name = name  # None: the group of a device that shares with nobody
        self._members: list[Lane] = []
        self._declared: int | None = None
        self.is_shared = False  # among several devices
        self.is_tight = False  # fewer turns than slots: a free slot does not say that nothing runs beside
        self.limit = 1
        self.room = 1  # the limit without the turns that stragglers keep: something may start while `held` is below
        self.held = 0

    @property
    def members(self) -> tuple[Lane, ...]:
        """In the order of their next turns."""
        return tuple(self._members)

    def join(self, lane: Lane) -> None:
        self._members.append(lane)
        declared = lane.device.group_max_concurrency
        if self.name is None:
            self.limit = len(lane.slots)
        elif declared is not None:
            self._declared = declared if self._declared is None else min(self._declared, declared)
            self.limit = max(1, self._declared)
        self.is_shared = len(self._members) > 1
        self.is_tight = self.limit < sum(len(member.slots) for member in self._members)
        self.reckon()

    def reckon(self) -> None:
        """Call after every change of limit, members or stragglers."""
        self.room = self.limit
        if self.is_tight:
            self.room -= sum(len(lane.stragglers) for lane in self._members)

    @property
    def is_overfull(self) -> bool:
        """More may run than is allowed: nothing new may start, also not where a turn is held already."""
        return self.held > self.room

    def next_lane(self) -> Lane | None:
        """Give the next turn: the first member in the rotation that can use it, which moves to the back."""
        members = self._members
        for index, lane in enumerate(members):
            if lane.is_ready():
                if len(members) > 1:
                    del members[index]
                    members.append(lane)
                self.held += 1
                return lane
        return None

    def next_asking(self) -> Lane | None:
        """Give the kept turn of a straggler to the question what became of it."""
        for index, lane in enumerate(self._members):
            if lane.may_ask():
                self._members.append(self._members.pop(index))
                self.held += 1
                return lane
        return None
