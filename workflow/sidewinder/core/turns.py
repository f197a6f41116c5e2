"""A turn: the right to use silicon that several devices share (M-112, M-113).

Members of a resource group take turns, round robin, at most as many at once as the tightest limit that any of them
declares. A member with nothing to do, or that is down, is passed over; one that joins late joins at the back.
"""

from __future__ import annotations

from sidewinder.core.lane import Lane


class Group:
    __slots__ = ("_declared", "_members", "held", "limit", "name")

    def __init__(self, name: str | None) -> None:
        self.name = name  # None: the group of a device that shares with nobody
        self._members: list[Lane] = []
        self._declared: int | None = None
        self.limit = 1
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
