"""A straggler: an attempt that may still run on its device although nothing here is in touch with it.

The link broke, or the controller before this one was killed. Its group shares silicon, so its turn is kept: another
member that started now would be measured beside it. The turn is free once the device says what became of the attempt,
and in any case when a run that hears nothing of us is over (its lease and the grace of its end). Where there are as
many turns as slots none of this is needed: the devices' own locks say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sidewinder.core import instructions as do
from sidewinder.core.instructions import Instruction
from sidewinder.core.lane import Lane
from sidewinder.model import AttemptId

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


class Straggler(NamedTuple):
    attempt: AttemptId
    until_s: float
    timer: str


def leave(
    c: Campaign, lane: Lane, attempt: AttemptId, until_s: float, out: list[Instruction], *, quiet: bool = False
) -> None:
    """From now on nothing is in touch with this attempt, and until then it may run. ``quiet``: a person knows."""
    if until_s <= c.now_s:
        return
    straggler = Straggler(attempt, until_s, c.set_timer("lease", lane, until_s, out))
    lane.stragglers[attempt.work_id] = straggler
    lane.group.reckon()
    if lane.group.is_tight and not quiet:
        tell(c, lane, straggler, out)


def tell(c: Campaign, lane: Lane, straggler: Straggler, out: list[Instruction]) -> None:
    attempt, until_s, _ = straggler
    fields = {"attempt": attempt.n, "at_most_s": until_s - c.now_s, "group": lane.group.name}
    out.append(do.Note("straggler", lane.id, attempt.work_id, fields))


def forget(c: Campaign, lane: Lane, work_id: str) -> None:
    """The attempt of this work, if there is one, is over or in touch again."""
    if lane.stragglers.pop(work_id, None) is not None:
        lane.group.reckon()
        c.wake(lane)


def over(c: Campaign, lane: Lane, timer: str) -> bool:
    """True: this timer was about a straggler, whose time is up."""
    for work_id, straggler in lane.stragglers.items():
        if straggler.timer == timer:
            forget(c, lane, work_id)
            return True
    return False
