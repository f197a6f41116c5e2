"""A kill: an attempt is stopped and proven dead, because a person asked for it or because the next one needs the proof.

A death that cannot be proven lets nothing follow: the device is quarantined (promise 9).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidewinder.core import events as ev
from sidewinder.core import failing, service, stragglers
from sidewinder.core import instructions as do
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, note, start
from sidewinder.core.lifecycle import QUEUED, Evicting, Kicked, Killing
from sidewinder.model import AttemptId, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


def kill(item: Item, attempt: AttemptId, slot: int, cancelled: bool, out: list[Instruction]) -> None:
    item.state = Killing(attempt, slot, cancelled)
    out.append(do.Kill(attempt, item.lane.id))


def inherit(c: Campaign, item: Item, attempt: AttemptId, out: list[Instruction]) -> None:
    """``item`` is queued just while its attempt, which nobody had wanted, is being ended for another work. The kill is
    its own from now on, with slot and turn, and the other waits for its turn again: an answer that two wait for would
    reach the wrong one."""
    lane, other = item.lane, c.evictions.pop(attempt)
    slot: int = other.state.slot  # type: ignore[union-attr,assignment]
    if failing.is_trial(other):
        lane.breaker.try_another()
        lane.update_gate()
    c.move(other, Kicked, QUEUED)
    service.give_place(c, other, out)
    stragglers.forget(c, lane, item.work_id)
    item.attempt = attempt
    c.move(item, Kicked, Killing(attempt, slot, False))


def on_kill_proven(c: Campaign, item: Item, event: ev.KillProven, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Evicting):
        del c.evictions[state.holder]
        note(item, "evicted", out, holder=str(state.holder))
        if c.stop is not None:
            service.cancel(c, item, out)
        else:
            start(item, state.attempt, state.slot, out)
        return
    assert isinstance(state, Killing)
    if state.cancel:
        service.cancel(c, item, out)
        return
    why = f"attempt {state.attempt.n} was lost on the device and is proven dead"
    failing.lost(c, item, state.attempt, state.slot, why, out)


def on_kill_unproven(c: Campaign, item: Item, event: ev.KillUnproven, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Killing) and state.cancel:
        note(item, "kill_unproven", out, attempt=state.attempt.n, reason=event.reason)
        service.cancel(c, item, out)
        return
    if isinstance(state, Evicting):
        del c.evictions[state.holder]
    stragglers.leave(c, item.lane, event.attempt, c.now_s + item.lane.outlives_s, out)
    reason = f"attempt {event.attempt.n} could not be proven dead on {item.lane.name} ({event.reason})"
    service.quarantine(c, item.lane, reason, out)
    if c.stop is not None:
        service.cancel(c, item, out)
    else:
        service.hole(c, item, reason, FailureClass.DEVICE, out)


def one_answer_less(c: Campaign, item: Item, out: list[Instruction], *, is_dead: bool = False) -> None:
    """A killed attempt owes two answers, one to ``Attach`` and one to ``Kill``; a failed link gives neither twice."""
    state = item.state
    assert isinstance(state, Killing)
    if state.answers > 1:
        item.state = state._replace(answers=state.answers - 1)
        return
    if not is_dead:
        note(item, "kill_unproven", out, attempt=state.attempt.n, reason="the device could not be reached")
    service.cancel(c, item, out)
