"""An attempt: one try at a piece of work, and what each event about it leads to.

One handler per event, called with the item in a state for which the table has an entry. A slot and a turn are held
from the claim until the record is on disk, so that nothing the controller does for one point overlaps the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sidewinder.core import events as ev
from sidewinder.core import failing, failover, killing, occupancy, service
from sidewinder.core import instructions as do
from sidewinder.core.breaker import HEALTHY
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, new, note, start
from sidewinder.core.lifecycle import (
    QUEUED,
    Asking,
    Following,
    Killing,
    Parsing,
    Publishing,
    Running,
    Starting,
    Waiting,
)
from sidewinder.core.policy import TABLE, PointEffect, classify, describe
from sidewinder.model import Failure, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


# -- claim, ask, start ------------------------------------------------------------------------------------------------


def on_journaled(c: Campaign, item: Item, event: ev.Journaled, out: list[Instruction]) -> None:
    attempt, slot = event.attempt, item.state.slot  # type: ignore[union-attr]
    if item.doubtful:
        # Also while stopping: an attempt that still runs must be waited for or killed, not forgotten.
        item.state = Asking(attempt, slot)  # type: ignore[arg-type]
        out.append(do.AskStatus(attempt, item.lane.id))
    elif c.stop is not None:
        service.cancel(c, item, out)
    else:
        start(item, attempt, slot, out)  # type: ignore[arg-type]


def on_journal_failed(c: Campaign, item: Item, event: ev.JournalFailed, out: list[Instruction]) -> None:
    service.stop_for_disk(c, item, event.error, out)


def on_status(c: Campaign, item: Item, event: ev.StatusAnswered, out: list[Instruction]) -> None:
    """The decision table of a controller that comes (back) to a device."""
    state = item.state
    assert isinstance(state, Asking)
    service.heard(c, item.lane)
    item.failures_in_row = 0
    if event.state == "running" or event.state == "finished":
        item.suspect = False
        if item.inherited:
            note(item, "adopted", out, attempt=item.n, state=event.state)
        else:
            note(item, "reattached", out, attempt=item.n, state=event.state)
        if c.stop is None or not c.stop.kill:
            item.state = Running(state.attempt, state.slot)
            out.append(do.Attach(state.attempt, item.lane.id))
        elif event.state == "running":
            killing.kill(item, state.attempt, state.slot, True, out)
        else:
            service.cancel(c, item, out)  # the device keeps the result; the next invocation fetches it
    elif event.state == "lost":
        if c.stop is not None:
            service.cancel(c, item, out)
        else:
            # rebooted, or its runner died: only a proof lets the next attempt start (promise 9)
            killing.kill(item, state.attempt, state.slot, False, out)
    elif event.state == "absent":
        item.doubtful = item.inherited = False
        if item.suspect and not failing.charge(c, item, item.n, f"attempt {item.n} never reached the device", out):
            return
        if c.stop is not None:
            service.cancel(c, item, out)
        elif event.max_attempt > item.n:
            item.n, item.inherited = event.max_attempt + 1, False
            c.claim_next(item, state.slot, out)
        elif item.lane.group.is_overfull:
            service.step_back(c, item, out)
        else:
            start(item, state.attempt, state.slot, out)
    else:
        raise c.unexpected(item, f"status {event.state!r}")


def on_started(c: Campaign, item: Item, event: ev.AttemptStarted, out: list[Instruction]) -> None:
    attempt = event.attempt
    slot: int = item.state.slot  # type: ignore[union-attr,assignment]
    lane = item.lane
    if not lane.reached:
        service.heard(c, lane)
    if lane.busy_since_s:
        lane.busy_since_s.pop(slot, None)
    if c.stop is not None and c.stop.kill:
        killing.kill(item, attempt, slot, True, out)
        return
    item.state = new(Running, (attempt, slot))
    out.append(new(do.Attach, (attempt, lane.id)))


def on_stale(c: Campaign, item: Item, event: ev.AttemptStale, out: list[Instruction]) -> None:
    state = item.state
    assert isinstance(state, Starting)
    item.n, item.inherited = max(event.max_attempt, item.n) + 1, False
    item.stales += 1
    if c.stop is not None:
        service.cancel(c, item, out)
    elif item.stales == 1:
        c.claim(item, state.slot, out)
    else:
        # a device that calls every number stale would keep us counting for ever
        failing.lost_contact(c, item, f"the device calls attempt {event.attempt.n} stale again", True, out)


def on_refused(c: Campaign, item: Item, event: ev.AttemptRefused, out: list[Instruction]) -> None:
    failing.fail(c, item, event.failure, out, ran=False)


def on_timer(c: Campaign, item: Item, event: ev.TimerFired, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Waiting):
        item.state = state._replace(timer=None)
        item.lane.due.append(item)
        c.wake(item.lane)
    else:
        item.state = QUEUED
        service.enqueue(c, item, out)
        c.wake(item.lane)


# -- the way back -----------------------------------------------------------------------------------------------------


def on_result(c: Campaign, item: Item, event: ev.ResultArrived, out: list[Instruction]) -> None:
    state = item.state
    if type(state) is not Running:
        # The run ended just as it was being killed. Its result stays on the device, the next invocation fetches it.
        killing.one_answer_less(c, item, out)
        return
    item.failures_in_row = 0
    if not item.lane.reached:
        service.heard(c, item.lane)
    evidence = event.evidence
    failure_class = classify(evidence)
    if failure_class is None:
        item.verdict = None
    else:
        what = {"state": evidence.state, "returncode": evidence.returncode, "error": evidence.error}
        failure = Failure(failure_class, describe(evidence, failure_class), {k: v for k, v in what.items() if v})
        if failure_class is not FailureClass.MEASUREMENT or evidence.state != "done":
            failing.fail(c, item, failure, out, ran=True)
            return
        item.verdict = failure  # the workload may say better why; it cannot make it a result
    if item.lane.breaker.state is not HEALTHY:
        service.completed(c, item, out)
    item.state = new(Parsing, state)  # the same attempt in the same slot
    out.append(new(do.Parse, (state.attempt,)))


def on_died(c: Campaign, item: Item, event: ev.AttemptDied, out: list[Instruction]) -> None:
    """What it ran in is over, and with it the attempt: no kill proves more, and no question brings anything home."""
    state = item.state
    if isinstance(state, Killing):
        killing.one_answer_less(c, item, out, is_dead=True)
        return
    item.failures_in_row = 0
    failure = event.failure
    item.death = failure.evidence
    effect = TABLE[failure.failure_class].point
    if isinstance(state, Asking) or effect is PointEffect.RESULT:  # else only the platform spoke, not the device
        service.heard(c, item.lane)
    if isinstance(state, Asking) and effect is PointEffect.RETRY:
        failing.lost(c, item, state.attempt, state.slot, failure.message, out)
        return
    failing.fail(c, item, failure, out, ran=True, keeps_result=False)


def on_parsed(c: Campaign, item: Item, event: ev.Parsed, out: list[Instruction]) -> None:
    state = item.state
    assert isinstance(state, Parsing)
    failure, verdict = event.failure, item.verdict
    if verdict is not None and (failure is None or failure.failure_class is FailureClass.PARSE):
        failure = verdict
    if failure is not None and TABLE[failure.failure_class].point is PointEffect.RAISE:
        raise c.unexpected(item, failure.message)
    item.state = new(Publishing, (state.attempt, state.slot, failure, True))
    out.append(new(do.Publish, (item.work_id, state.attempt, failure)))


def on_published(c: Campaign, item: Item, event: ev.Published, out: list[Instruction]) -> None:
    state = item.state
    assert isinstance(state, Publishing)
    failure = state.failure
    if state.ack and state.attempt is not None:
        out.append(new(do.Ack, (state.attempt, item.lane.id)))
    if item.copy is not None and item.copy in c.items and failure is not None:
        item.state = Following(item.copy, failure)
        return
    is_hole = failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED
    outcome = "ok" if failure is None else "hole" if is_hole else "failed"
    c.finish(item, outcome, failure, out)


def on_publish_failed(c: Campaign, item: Item, event: ev.PublishFailed, out: list[Instruction]) -> None:
    # No Ack: the device keeps the result, so that the next invocation fetches instead of measuring again.
    service.stop_for_disk(c, item, event.error, out)


def on_exclusive_ended(c: Campaign, item: Item, event: ev.ExclusiveEnded, out: list[Instruction]) -> None:
    c.finish(item, "ok", None, out)


Handler = Callable[["Campaign", Item, Any, list[Instruction]], None]

HANDLERS: Final[dict[type[Any], Handler]] = {
    ev.Journaled: on_journaled,
    ev.JournalFailed: on_journal_failed,
    ev.StatusAnswered: on_status,
    ev.AttemptStarted: on_started,
    ev.AttemptBusy: occupancy.on_busy,
    ev.AttemptStale: on_stale,
    ev.AttemptRefused: on_refused,
    ev.ResultArrived: on_result,
    ev.AttemptDied: on_died,
    ev.Parsed: on_parsed,
    ev.Published: on_published,
    ev.PublishFailed: on_publish_failed,
    ev.KillProven: killing.on_kill_proven,
    ev.KillUnproven: killing.on_kill_unproven,
    ev.TransportFailed: failing.on_transport_failed,
    ev.ExclusiveEnded: on_exclusive_ended,
    ev.TimerFired: on_timer,
    ev.Moved: failover.on_moved,
    ev.MoveRefused: failover.on_refused,
}
