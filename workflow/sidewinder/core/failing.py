"""A failure of an attempt: what it costs, whether it is tried again, and when.

Transport costs an attempt only once the device has been asked: what still runs, or has ended, goes on (promise 8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core import killing, service, stragglers
from sidewinder.core.breaker import HEALTHY, Trial
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, note
from sidewinder.core.lifecycle import BackingOff, Evicting, Killing, Publishing, Running, Starting
from sidewinder.core.policy import MAX_PREEMPTIONS, TABLE, BreakerEffect, PointEffect
from sidewinder.core.retry import wait_s
from sidewinder.model import AttemptId, Failure, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


def on_transport_failed(c: Campaign, item: Item, event: ev.TransportFailed, out: list[Instruction]) -> None:
    state = item.state
    if isinstance(state, Killing) and state.cancel:
        killing.one_answer_less(c, item, out)
        return
    lane = item.lane
    lane.reached = False
    if isinstance(state, Starting | Running):
        # It may run, it may not: whether it costs an attempt is known once the device has been asked.
        item.doubtful = True
        item.suspect = not is_trial(item)
        item.may_run_until_s = c.now_s + (lane.outlives_s if event.may_run_s is None else event.may_run_s)
        stragglers.leave(c, lane, state.attempt, item.may_run_until_s, out)
        costs = False
    else:
        if isinstance(state, Evicting):
            del c.evictions[state.holder]
            stragglers.leave(c, lane, state.holder, c.now_s + lane.outlives_s, out)
        elif item.doubtful:
            stragglers.leave(c, lane, event.attempt, item.may_run_until_s, out, quiet=True)
        # A look or a kill that fails costs nothing while the device fails for everybody: the breaker bounds that. If
        # the device works for others, it is this point that the bound is for.
        costs = lane.breaker.in_row == 0
    lost_contact(c, item, event.error, costs, out)


def is_trial(item: Item) -> bool:
    state = item.lane.breaker.state
    return isinstance(state, Trial) and state.work_id == item.work_id


def charge(c: Campaign, item: Item, gone: int, why: str, out: list[Instruction]) -> bool:
    """Attempt ``gone`` is known to be over without a result: if the way to it had failed, it costs one of the budget.
    False: that was the last one."""
    item.repeats += item.suspect
    item.suspect = False
    if item.repeats < item.lane.policy.retry.max_attempts:
        note_retry(c, item, FailureClass.TRANSPORT, gone, why, out, over=True)
        return True
    exhausted(c, item, why, out)
    return False


def lost(c: Campaign, item: Item, attempt: AttemptId, slot: int, why: str, out: list[Instruction]) -> None:
    """The device was asked, and the attempt is proven over without a result: the next one follows at once."""
    item.doubtful = item.inherited = False
    item.n += 1
    if not charge(c, item, attempt.n, why, out):
        return
    if c.stop is not None:
        service.cancel(c, item, out)
    else:
        c.claim_next(item, slot, out)


def exhausted(c: Campaign, item: Item, error: str, out: list[Instruction]) -> None:
    tries = item.lane.policy.retry.max_attempts
    note(item, "exhausted", out, attempt=item.n, max_attempts=tries, error=error[:600])
    reason = f"{tries} attempt(s) on {item.lane.name} failed on the way (last: {error})"
    service.hole(c, item, reason, FailureClass.TRANSPORT, out)


def lost_contact(c: Campaign, item: Item, error: str, costs: bool, out: list[Instruction]) -> None:
    """A transport failure: the breaker hears of it, slot and turn are given back, and the work backs off."""
    lane = item.lane
    trial = is_trial(item)
    opened = lane.breaker.failed(item.work_id, error, c.now_s)
    note(
        item,
        "transport_failure",
        out,
        attempt=item.attempt.n if item.attempt is not None else item.n,
        max_attempts=lane.policy.retry.max_attempts,
        error=error[:600],
        breaker_opened=opened,
        failures=lane.breaker.failures,
    )
    item.failures_in_row += 1
    item.repeats += costs and not trial
    if item.repeats >= lane.policy.retry.max_attempts:
        exhausted(c, item, error, out)
    else:
        item.at_tail = item.at_tail if trial else 1
        back_off(c, item, error, FailureClass.TRANSPORT, item.failures_in_row, out)
    service.failed(c, lane, item.work_id, opened, error, out)


def back_off(
    c: Campaign,
    item: Item,
    error: str,
    failure_class: FailureClass,
    failures: int,
    out: list[Instruction],
) -> None:
    """Give back slot and turn, wait, then queue again."""
    out_of_service = item.lane.out_of_service
    if c.stop is not None:
        service.cancel(c, item, out)
    elif out_of_service is not None:
        service.hole(c, item, out_of_service.reason, out_of_service.cause, out)
    else:
        failed = item.attempt.n if item.attempt is not None else item.n
        delay_s = wait_s(item.lane.policy.retry, failures, c.rng)
        c.let_go(item)
        item.state = BackingOff(c.set_timer("retry", item, c.now_s + delay_s, out))
        over = not item.doubtful
        note_retry(c, item, failure_class, failed, error, out, over=over, delay_s=delay_s)


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
    tries = item.lane.policy.retry.max_attempts
    known: dict[str, Any] = {"failure_class": failure_class.value, "attempt": attempt, "max_attempts": tries}
    known["error"] = error[:600]
    if item.death:
        known["evidence"], item.death = item.death, None
    note(item, "retry", out, **known, **fields)


def fail(
    c: Campaign, item: Item, failure: Failure, out: list[Instruction], *, ran: bool, keeps_result: bool | None = None
) -> None:
    """The attempt is over and failed, for a known reason: the table says what that does. ``keeps_result``: the device
    has something of it that it may forget (None: if it ran there)."""
    rule = TABLE[failure.failure_class]
    lane = item.lane
    if rule.point is PointEffect.RAISE:
        raise c.unexpected(item, failure.message)
    # What an earlier invocation started says nothing of the device of today, which may have been mended since.
    is_news = not (item.inherited and ran and c.stop is None)
    if rule.breaker is BreakerEffect.ALIVE and ran and lane.breaker.state is not HEALTHY:
        service.completed(c, item, out)
    elif rule.breaker is BreakerEffect.QUARANTINE and is_news:
        service.quarantine(c, lane, failure.message, out)
    item.doubtful = item.suspect = False
    if rule.point is PointEffect.RESULT:
        attempt, slot = item.attempt, item.state.slot  # type: ignore[union-attr]
        item.state = Publishing(attempt, slot, failure, ran if keeps_result is None else keeps_result)
        out.append(do.Publish(item.work_id, attempt, failure))
    elif rule.point is PointEffect.DROP:
        service.cancel(c, item, out)
    elif rule.point is PointEffect.HOLE and is_news:
        service.hole(c, item, failure.message, failure.failure_class, out)
    else:
        item.n += ran  # a refused attempt does not exist on the device: its number is still free
        if not is_news:
            item.inherited = False
            note_retry(c, item, failure.failure_class, item.n - 1, failure.message, out, over=True)
            c.claim_next(item, item.state.slot, out)  # type: ignore[union-attr, arg-type]
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
