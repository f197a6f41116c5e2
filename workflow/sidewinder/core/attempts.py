"""An attempt: one try at a piece of work, and what each event about it leads to.

One handler per event, called with the item in a state for which the table has an entry. A slot and a turn are held
from the claim until the record is on disk, so that nothing the controller does for one point overlaps the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core import service
from sidewinder.core.breaker import HEALTHY, Trial
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item
from sidewinder.core.lifecycle import (
    HOLDS_SLOT,
    QUEUED,
    Asking,
    BackingOff,
    Claiming,
    Evicting,
    Kicked,
    Killing,
    Parsing,
    Publishing,
    Queued,
    Running,
    Starting,
    Waiting,
)
from sidewinder.core.policy import MAX_PREEMPTIONS, TABLE, BreakerEffect, PointEffect, classify, describe
from sidewinder.core.retry import wait_s
from sidewinder.model import AttemptId, Failure, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign

#: On the way every point takes: the constructor of a named tuple costs twice as much, and there are a dozen a point.
new: Final = tuple.__new__

#: How often a device whose slot is held by another controller is asked again.
BUSY_POLL_S: Final = 5.0


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


def start(item: Item, attempt: AttemptId, slot: int, out: list[Instruction]) -> None:
    item.state = new(Starting, (attempt, slot))
    out.append(new(do.StartAttempt, (attempt, item.lane.id, slot)))


def on_status(c: Campaign, item: Item, event: ev.StatusAnswered, out: list[Instruction]) -> None:
    """The decision table of a controller that comes (back) to a device."""
    state = item.state
    assert isinstance(state, Asking)
    item.failures_in_row = 0
    if event.state == "running" or event.state == "finished":
        item.suspect = False
        note(item, "reattached", out, attempt=item.n, state=event.state)
        if c.stop is None or not c.stop.kill:
            item.state = Running(state.attempt, state.slot)
            out.append(do.Attach(state.attempt, item.lane.id))
        elif event.state == "running":
            kill(item, state.attempt, state.slot, True, out)
        else:
            service.cancel(c, item, out)  # the device keeps the result; the next invocation fetches it
    elif event.state == "lost":
        if c.stop is not None:
            service.cancel(c, item, out)
        else:
            # rebooted, or its runner died: only a proof lets the next attempt start (promise 9)
            kill(item, state.attempt, state.slot, False, out)
    elif event.state == "absent":
        item.doubtful = item.inherited = False
        if item.suspect and not charge(c, item, item.n, f"attempt {item.n} never reached the device", out):
            return
        if c.stop is not None:
            service.cancel(c, item, out)
        elif event.max_attempt > item.n:
            item.n, item.inherited = event.max_attempt + 1, False
            c.claim(item, state.slot, out)
        else:
            start(item, state.attempt, state.slot, out)
    else:
        raise c.unexpected(item, f"status {event.state!r}")


def on_started(c: Campaign, item: Item, event: ev.AttemptStarted, out: list[Instruction]) -> None:
    attempt = event.attempt
    slot: int = item.state.slot  # type: ignore[union-attr,assignment]
    lane = item.lane
    if lane.busy_since_s:
        lane.busy_since_s.pop(slot, None)
    if c.stop is not None and c.stop.kill:
        kill(item, attempt, slot, True, out)
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
        lost_contact(c, item, f"the device calls attempt {event.attempt.n} stale again", True, out)


def on_refused(c: Campaign, item: Item, event: ev.AttemptRefused, out: list[Instruction]) -> None:
    fail(c, item, event.failure, out, ran=False)


# -- a busy slot ------------------------------------------------------------------------------------------------------


def on_busy(c: Campaign, item: Item, event: ev.AttemptBusy, out: list[Instruction]) -> None:
    """Somebody's run is in the slot: ours (adopt it, change places with it, or end it) or another controller's."""
    state = item.state
    assert isinstance(state, Starting)
    if c.stop is not None:
        service.cancel(c, item, out)
        return
    holder = parse_attempt(event.holder) if event.mine else None
    if holder is not None:
        other = c.items.get(holder.work_id)
        if holder in c.evictions:
            wait_for_slot(c, item, event.holder, out)
            return
        if other is None or other is item or other.lane is not item.lane or other.n != holder.n:
            item.state = Evicting(state.attempt, state.slot, holder)
            c.evictions[holder] = item
            out.append(do.Kill(holder, item.lane.id))
            return
        if type(other.state) in (Queued, BackingOff):
            other.doubtful = True  # whatever was believed: the device is the truth
            hand_over(c, item, other, holder, state.slot, out)
            return
        if change_places(item, other):
            start(item, state.attempt, item.state.slot, out)  # type: ignore[union-attr,arg-type]
            return
    wait_for_slot(c, item, event.holder, out)


def parse_attempt(text: str) -> AttemptId | None:
    work_id, _, n = text.rpartition("#")
    return AttemptId(work_id, int(n)) if work_id and n.isascii() and n.isdigit() else None


def hand_over(c: Campaign, item: Item, other: Item, holder: AttemptId, slot: int, out: list[Instruction]) -> None:
    """The link broke while ``other`` ran and is back: ``other`` still runs, so its back-off is over, at once."""
    lane = item.lane
    if is_trial(item):
        lane.breaker.try_another()
    if isinstance(other.state, Queued):
        lane.points.remove(other)
    c.move(other, Kicked, Claiming(holder, slot))
    c.claim(other, slot, out)
    item.state = QUEUED
    item.attempt = None
    lane.points.push(item)
    c.wake(lane)


def change_places(item: Item, other: Item) -> bool:
    """After a restart nobody knows which slot an adopted run is in, until the device says so: relabel both."""
    if item.swaps >= len(item.lane.slots) or type(other.state) not in HOLDS_SLOT or isinstance(other.state, Starting):
        return False
    item.swaps += 1
    mine, theirs = item.state, other.state
    item.state = mine._replace(slot=theirs.slot)  # type: ignore[union-attr, call-arg, arg-type]
    other.state = theirs._replace(slot=mine.slot)  # type: ignore[union-attr, call-arg, arg-type]
    return True


def wait_for_slot(c: Campaign, item: Item, holder: str, out: list[Instruction]) -> None:
    state = item.state
    assert isinstance(state, Starting)
    lane = item.lane
    since_s = lane.busy_since_s.setdefault(state.slot, c.now_s)
    limit_s = c.policy.busy_wait_s
    if c.now_s - since_s >= limit_s:
        reason = f"{lane.name} was busy with {holder} of another controller for {c.now_s - since_s:.0f} s"
        service.hole(c, item, f"{reason} (busy_wait_s: {limit_s:g})", FailureClass.TRANSPORT, out, holder=holder)
        return
    if lane.out_of_service is not None:
        service.hole(c, item, lane.out_of_service.reason, lane.out_of_service.cause, out)
        return
    if since_s == c.now_s:
        note(item, "busy", out, holder=holder, slot=state.slot)
    timer = c.set_timer("busy", item, min(c.now_s + BUSY_POLL_S, since_s + limit_s), out)
    item.state = Waiting(state.attempt, state.slot, holder, timer)
    lane.group.held -= 1
    c.wake(lane)


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
        one_answer_less(c, item, out)
        return
    item.failures_in_row = 0
    evidence = event.evidence
    failure_class = classify(evidence)
    if failure_class is None:
        item.verdict = None
    else:
        what = {"state": evidence.state, "returncode": evidence.returncode, "error": evidence.error}
        failure = Failure(failure_class, describe(evidence, failure_class), {k: v for k, v in what.items() if v})
        if failure_class is not FailureClass.MEASUREMENT or evidence.state != "done":
            fail(c, item, failure, out, ran=True)
            return
        item.verdict = failure  # the workload may say better why; it cannot make it a result
    if item.lane.breaker.state is not HEALTHY:
        service.completed(c, item.lane, out)
    item.state = new(Parsing, state)  # the same attempt in the same slot
    out.append(new(do.Parse, (state.attempt,)))


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
    is_hole = failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED
    outcome = "ok" if failure is None else "hole" if is_hole else "failed"
    c.finish(item, outcome, failure, out)


def on_publish_failed(c: Campaign, item: Item, event: ev.PublishFailed, out: list[Instruction]) -> None:
    # No Ack: the device keeps the result, so that the next invocation fetches instead of measuring again.
    service.stop_for_disk(c, item, event.error, out)


def on_exclusive_ended(c: Campaign, item: Item, event: ev.ExclusiveEnded, out: list[Instruction]) -> None:
    c.finish(item, "ok", None, out)


# -- killing ----------------------------------------------------------------------------------------------------------


def kill(item: Item, attempt: AttemptId, slot: int, cancelled: bool, out: list[Instruction]) -> None:
    item.state = Killing(attempt, slot, cancelled)
    out.append(do.Kill(attempt, item.lane.id))


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
    item.doubtful = item.inherited = False
    item.n += 1
    if not charge(
        c, item, state.attempt.n, f"attempt {state.attempt.n} was lost on the device and is proven dead", out
    ):
        return
    if c.stop is not None:
        service.cancel(c, item, out)
    else:
        c.claim(item, state.slot, out)


def on_kill_unproven(c: Campaign, item: Item, event: ev.KillUnproven, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Killing) and state.cancel:
        note(item, "kill_unproven", out, attempt=state.attempt.n, reason=event.reason)
        service.cancel(c, item, out)
        return
    if isinstance(state, Evicting):
        del c.evictions[state.holder]
    reason = f"attempt {event.attempt.n} could not be proven dead on {item.lane.name} ({event.reason})"
    service.quarantine(c, item.lane, reason, out)
    if c.stop is not None:
        service.cancel(c, item, out)
    else:
        service.hole(c, item, reason, FailureClass.DEVICE, out)


def one_answer_less(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """A killed attempt owes two answers, one to ``Attach`` and one to ``Kill``; a failed link gives neither twice."""
    state = item.state
    assert isinstance(state, Killing)
    if state.answers > 1:
        item.state = state._replace(answers=state.answers - 1)
        return
    note(item, "kill_unproven", out, attempt=state.attempt.n, reason="the device could not be reached")
    service.cancel(c, item, out)


# -- failing ----------------------------------------------------------------------------------------------------------


def on_transport_failed(c: Campaign, item: Item, event: ev.TransportFailed, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Killing) and state.cancel:
        one_answer_less(c, item, out)
        return
    if isinstance(state, Starting | Running):
        # It may run, it may not: whether it costs an attempt is known once the device has been asked.
        item.doubtful = True
        item.suspect = not is_trial(item)
        costs = False
    else:
        if isinstance(state, Evicting):
            del c.evictions[state.holder]
        # A look or a kill that fails costs nothing while the device fails for everybody: the breaker bounds that. If
        # the device works for others, it is this point that the bound is for.
        costs = item.lane.breaker.in_row == 0
    lost_contact(c, item, event.error, costs, out)


def is_trial(item: Item) -> bool:
    state = item.lane.breaker.state
    return isinstance(state, Trial) and state.work_id == item.work_id


def charge(c: Campaign, item: Item, gone: int, why: str, out: list[Instruction]) -> bool:
    """Attempt ``gone`` is known to be over without a result: if the way to it had failed, it costs one of the budget.
    False: that was the last one."""
    item.repeats += item.suspect
    item.suspect = False
    if item.repeats < c.policy.retry.max_attempts:
        note_retry(c, item, FailureClass.TRANSPORT, gone, why, out, over=True)
        return True
    exhausted(c, item, why, out)
    return False


def exhausted(c: Campaign, item: Item, error: str, out: list[Instruction]) -> None:
    tries = c.policy.retry.max_attempts
    note(item, "exhausted", out, attempt=item.n, max_attempts=tries, error=error[:600])
    reason = f"{tries} attempt(s) on {item.lane.name} failed on the way (last: {error})"
    service.hole(c, item, reason, FailureClass.TRANSPORT, out)


def lost_contact(c: Campaign, item: Item, error: str, costs: bool, out: list[Instruction]) -> None:
    """A transport failure: the breaker hears of it, slot and turn are given back, and the work backs off."""
    lane = item.lane
    trial = is_trial(item)
    opened = lane.breaker.failed(item.work_id, error, c.now_s)
    item.failures_in_row += 1
    item.repeats += costs and not trial
    if item.repeats >= c.policy.retry.max_attempts:
        exhausted(c, item, error, out)
    else:
        item.at_tail = item.at_tail if trial else 1
        back_off(c, item, error, FailureClass.TRANSPORT, item.failures_in_row, out, opened=opened)
    service.failed(c, lane, opened, error, out)


def back_off(
    c: Campaign,
    item: Item,
    error: str,
    failure_class: FailureClass,
    failures: int,
    out: list[Instruction],
    *,
    opened: bool = False,
) -> None:
    """Give back slot and turn, wait, then queue again."""
    out_of_service = item.lane.out_of_service
    if c.stop is not None:
        service.cancel(c, item, out)
    elif out_of_service is not None:
        service.hole(c, item, out_of_service.reason, out_of_service.cause, out)
    else:
        failed = item.attempt.n if item.attempt is not None else item.n
        delay_s = wait_s(c.policy.retry, failures, c.rng)
        c.let_go(item)
        item.state = BackingOff(c.set_timer("retry", item, c.now_s + delay_s, out))
        over = not item.doubtful
        note_retry(c, item, failure_class, failed, error, out, over=over, delay_s=delay_s, breaker_opened=opened)


def note_retry(
    c: Campaign,
    item: Item,
    failure_class: FailureClass,
    attempt: int,
    error: str,
    out: list[Instruction],
    **fields: Any,
) -> None:
    """``over``: the attempt is known to be over, so what follows repeats it; else the device is asked first."""
    tries = c.policy.retry.max_attempts
    known = {"failure_class": failure_class.value, "attempt": attempt, "max_attempts": tries, "error": error[:600]}
    note(item, "retry", out, **known, **fields)


def fail(c: Campaign, item: Item, failure: Failure, out: list[Instruction], *, ran: bool) -> None:
    """The attempt is over and failed, for a known reason: the table says what that does."""
    rule = TABLE[failure.failure_class]
    lane = item.lane
    if rule.point is PointEffect.RAISE:
        raise c.unexpected(item, failure.message)
    if rule.breaker is BreakerEffect.ALIVE and lane.breaker.state is not HEALTHY:
        service.completed(c, lane, out)
    elif rule.breaker is BreakerEffect.QUARANTINE:
        service.quarantine(c, lane, failure.message, out)
    item.doubtful = item.suspect = False
    if rule.point is PointEffect.RESULT:
        attempt, slot = item.attempt, item.state.slot  # type: ignore[union-attr]
        item.state = Publishing(attempt, slot, failure, ran)
        out.append(do.Publish(item.work_id, attempt, failure))
    elif rule.point is PointEffect.DROP:
        service.cancel(c, item, out)
    elif rule.point is PointEffect.HOLE:
        service.hole(c, item, failure.message, failure.failure_class, out)
    else:
        item.n += ran  # a refused attempt does not exist on the device: its number is still free
        if item.inherited and ran and c.stop is None:
            item.inherited = False
            note_retry(c, item, failure.failure_class, item.n - 1, failure.message, out, over=True)
            c.claim(item, item.state.slot, out)  # type: ignore[union-attr, arg-type]
        elif rule.point is PointEffect.RETRY:
            lost_contact(c, item, failure.message, True, out)
        else:
            preempted(c, item, failure.message, out)


def preempted(c: Campaign, item: Item, error: str, out: list[Instruction]) -> None:
    item.preemptions += 1
    if item.preemptions > MAX_PREEMPTIONS:
        reason = f"preempted {item.preemptions} times on {item.lane.name} (last: {error})"
        service.hole(c, item, reason, FailureClass.PREEMPTED, out)
    else:
        item.at_tail = 1
        back_off(c, item, error, FailureClass.PREEMPTED, item.preemptions, out)


def note(item: Item, kind: str, out: list[Instruction], **fields: Any) -> None:
    out.append(do.Note(kind, item.lane.id, item.work_id, fields))


Handler = Callable[["Campaign", Item, Any, list[Instruction]], None]

HANDLERS: Final[dict[type[Any], Handler]] = {
    ev.Journaled: on_journaled,
    ev.JournalFailed: on_journal_failed,
    ev.StatusAnswered: on_status,
    ev.AttemptStarted: on_started,
    ev.AttemptBusy: on_busy,
    ev.AttemptStale: on_stale,
    ev.AttemptRefused: on_refused,
    ev.ResultArrived: on_result,
    ev.Parsed: on_parsed,
    ev.Published: on_published,
    ev.PublishFailed: on_publish_failed,
    ev.KillProven: on_kill_proven,
    ev.KillUnproven: on_kill_unproven,
    ev.TransportFailed: on_transport_failed,
    ev.ExclusiveEnded: on_exclusive_ended,
    ev.TimerFired: on_timer,
}
