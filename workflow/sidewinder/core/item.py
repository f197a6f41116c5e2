"""An item: one open piece of work, with its state and its budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sidewinder.core import instructions as do
from sidewinder.core.instructions import Instruction
from sidewinder.core.lifecycle import QUEUED, Starting, State
from sidewinder.model import AttemptId, Failure

if TYPE_CHECKING:
    from sidewinder.core.events import Work
    from sidewinder.core.lane import Lane

#: On the way every point takes: the constructor of a named tuple costs twice as much, and there are a dozen a point.
new: Final = tuple.__new__


class Item:
    # Defaults live on the class: there are many items, and most never fail, wait or change places.
    at_tail = 0  # 1: queued behind its own priority, because it was tried before
    attempt: AttemptId | None = None  # the current one; None while queued or backing off
    #: how its last attempt died, where that is known: what the note of its repeat says (cause, proof)
    death: Mapping[str, Any] | None = None
    copy: str | None = None  # the work that another device does instead
    original: str | None = None  # ... and whose copy this one is: it is not moved again
    failures_in_row = 0
    may_run_until_s = 0.0  # of a doubtful attempt: by then it is over, whatever became of it
    preemptions = 0
    repeats = 0  # attempts that transport has cost
    stales = 0
    swaps = 0
    #: this attempt failed on the way in this invocation; if it is not on the device, it costs one of the budget
    suspect = False
    ticket = 0  # the queue's: 0 while not queued
    stand_ins_tried: tuple[str, ...] = ()
    verdict: Failure | None = None  # what the evidence says, before the workload has parsed

    def __init__(self, work: Work, lane: Lane) -> None:
        self.work_id, _, self.priority, self.position, last_attempt, in_flight, self.exclusive, _ = work
        self.lane = lane
        self.state: State = QUEUED
        #: number of the current or next attempt
        self.n = last_attempt if in_flight else last_attempt + 1
        #: the attempt numbered ``n`` may exist on the device: ask before anything else
        self.doubtful = in_flight
        #: ... and an earlier invocation started it: how it ended says nothing about the device of today
        self.inherited = in_flight


def start(item: Item, attempt: AttemptId, slot: int, out: list[Instruction]) -> None:
    item.state = new(Starting, (attempt, slot))
    out.append(new(do.StartAttempt, (attempt, item.lane.id, slot)))


def note(item: Item, kind: str, out: list[Instruction], **fields: Any) -> None:
    out.append(do.Note(kind, item.lane.id, item.work_id, fields))
