"""A lane: one device as the core sees it, with its queues, its slots, its breaker and its place in a group."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from sidewinder.core.breaker import Breaker, Closed, HalfOpen
from sidewinder.core.queues import Queue
from sidewinder.core.slots import Slots
from sidewinder.model import OUTLIVES_S, Device, FailureClass, Policy

if TYPE_CHECKING:
    from sidewinder.core.item import Item
    from sidewinder.core.stragglers import Straggler
    from sidewinder.core.turns import Group


class OutOfService(NamedTuple):
    """The device takes no more points in this invocation. ``cause``: ``device`` (quarantined) or ``transport``."""

    reason: str
    cause: FailureClass


class Lane:
    __slots__ = (
        "breaker",
        "busy_since_s",
        "calling",
        "device",
        "due",
        "gate",
        "group",
        "id",
        "jobs",
        "name",
        "out_of_service",
        "outcomes",
        "outlives_s",
        "points",
        "policy",
        "quarantine",
        "reached",
        "rest_timer",
        "slots",
        "stragglers",
    )

    def __init__(
        self, device: Device, group: Group, policy: Policy, name: str = "", outlives_s: float = OUTLIVES_S
    ) -> None:
        self.device = device
        self.id = device.id
        self.name = name or device.id  # for people
        self.group = group
        self.policy = policy  # of the lab that it belongs to
        self.slots = Slots(max(1, device.max_concurrency))
        self.points = Queue()
        self.jobs = Queue()  # ordinary jobs of the controller: no breaker and no quarantine of a device stops them
        self.due: deque[Item] = deque()  # have a slot and want only the turn back (`Waiting` whose wait is over)
        self.breaker = Breaker(device.max_transport_failures, device.recovery_after_s)
        self.out_of_service: OutOfService | None = None
        self.quarantine: str | None = None  # why an earlier invocation took it out; a passed probe lifts that
        self.rest_timer: str | None = None
        self.busy_since_s: dict[int, float] = {}  # by slot: since when another controller's run is in it
        self.reached = False  # the last thing heard of it was an answer
        self.calling = False  # it is being called, to see whether it answers
        self.outlives_s = outlives_s
        self.stragglers: dict[str, Straggler] = {}  # by work
        self.outcomes: Counter[str] = Counter()
        self.gate: str | None = None  # why no new point may start; None: it may

    def update_gate(self) -> None:
        """Call after every change of breaker, rest or service."""
        state = self.breaker.state
        if self.out_of_service is not None:
            self.gate = self.out_of_service.reason
        elif not isinstance(state, Closed | HalfOpen):
            self.gate = f"the device is down: {state.reason}"
        elif self.rest_timer is not None:
            self.gate = "the device rests after failures in a row"
        else:
            self.gate = "the device is called before it takes a turn" if self.must_be_called else None

    @property
    def must_be_called(self) -> bool:
        """In a group, nobody shall wait with the turn for a connection that never comes."""
        return not self.reached and self.group.is_shared

    def may_ask(self) -> bool:
        """Is the next thing here a question about an attempt that may still run? Its turn is kept for that."""
        if not self.stragglers or self.gate is not None or not self.slots.free or not self.points.waiting:
            return False
        return self.points.first().work_id in self.stragglers

    def is_ready(self) -> bool:
        """Could something start here, had it a turn? Asked for every member of a group at every turn."""
        if self.slots.free and ((self.gate is None and self.points.waiting) or self.jobs.waiting):
            return True
        return bool(self.due)

    def next_item(self) -> Item:
        """Take what runs next; only for a lane that is ready and owes nobody a turn."""
        points, jobs = self.points, self.jobs
        if not jobs.waiting:
            return points.pop()
        if self.gate is not None or not points.waiting or jobs.rank() <= points.rank():
            return jobs.pop()
        return points.pop()
