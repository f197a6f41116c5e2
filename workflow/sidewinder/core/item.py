"""An item: one open piece of work, with its state and its budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidewinder.core.lifecycle import QUEUED, State
from sidewinder.model import AttemptId, Failure

if TYPE_CHECKING:
    from sidewinder.core.events import Work
    from sidewinder.core.lane import Lane


class Item:
    __slots__ = (
        "at_tail",
        "attempt",
        "doubtful",
        "exclusive",
        "failures_in_row",
        "inherited",
        "lane",
        "n",
        "position",
        "preemptions",
        "priority",
        "repeats",
        "stales",
        "state",
        "suspect",
        "swaps",
        "ticket",
        "verdict",
        "work_id",
    )

    def __init__(self, work: Work, lane: Lane) -> None:
        self.work_id = work.work_id
        self.lane = lane
        self.priority = work.priority
        self.position = work.position
        self.exclusive = work.exclusive
        self.state: State = QUEUED
        self.attempt: AttemptId | None = None  # the current one; None while queued or backing off
        #: number of the current or next attempt
        self.n = work.last_attempt if work.in_flight else work.last_attempt + 1
        #: the attempt numbered ``n`` may exist on the device: ask before anything else
        self.doubtful = work.in_flight
        #: ... and an earlier invocation started it: how it ended says nothing about the device of today
        self.inherited = work.in_flight
        #: this attempt failed on the way in this invocation; if it is not on the device, it costs one of the budget
        self.suspect = False
        self.at_tail = 0
        self.ticket = 0  # the queue's: 0 while not queued
        self.failures_in_row = 0
        self.repeats = 0  # attempts that transport has cost
        self.preemptions = 0
        self.stales = 0
        self.swaps = 0
        self.verdict: Failure | None = None  # what the evidence says, before the workload has parsed
