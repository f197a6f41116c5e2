"""A failover: another device does the work of one that is out, where the lab declares it (M-118).

What was planned stays a hole of its own device. The copy is another measurement: it has its own name and record, and
is never moved again. The stand-in is looked at before anything is sent to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core import service
from sidewinder.core.breaker import Closed, HalfOpen
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, note
from sidewinder.core.lifecycle import Followed, Following, Moving, Publishing
from sidewinder.model import Failure

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


def stand_in(c: Campaign, item: Item) -> str | None:
    """The first device that may take this work over and takes points; None: nobody."""
    if c.stop is not None or item.original is not None:
        return None
    for name in item.lane.device.failover_to:
        lane = c.lanes.get(name)
        if lane is None or lane is item.lane or name in item.stand_ins_tried or lane.out_of_service is not None:
            continue
        if isinstance(lane.breaker.state, Closed | HalfOpen):
            return name
    return None


def on_moved(c: Campaign, item: Item, event: ev.Moved, out: list[Instruction]) -> None:
    state = item.state
    assert isinstance(state, Moving)
    failure, to_device = state.failure, c.lanes[event.to_device]
    reason = str(failure.evidence["reason"])
    copy = None if event.copy is None else service.admit(c, event.copy, out)
    if copy is not None:
        copy.original = item.work_id
    if c.stop is not None:
        if copy is not None:
            service.cancel(c, copy, out)
    else:
        done = "It was moved to" if copy is not None else "An earlier run moved it to"
        message = (
            f"not attempted: {reason}. {done} {to_device.name} as {event.moved_to}. "
            f"Run the same command again to retry it on {item.lane.name}."
        )
        failure = Failure(failure.failure_class, message, {**failure.evidence, "moved_to": event.moved_to})
        known = {"moved_to": event.moved_to, "measured_before": copy is None}
        note(item, "moved", out, to_device=to_device.name, reason=reason[:600], **known)
        if copy is not None:
            item.copy = copy.work_id
            service.take_in(c, copy, out)
            c.wake(copy.lane)
    item.state = Publishing(None, None, failure)
    out.append(do.Publish(item.work_id, None, failure))


def on_refused(c: Campaign, item: Item, event: ev.MoveRefused, out: list[Instruction]) -> None:
    """The next one that may stand in, or the hole."""
    state = item.state
    assert isinstance(state, Moving)
    note(item, "move_refused", out, to_device=c.lanes[event.to_device].name, error=event.error[:600])
    item.stand_ins_tried = (*item.stand_ins_tried, event.to_device)
    other = stand_in(c, item)
    if other is not None:
        item.state = state._replace(to_device=other)
        out.append(do.Move(item.work_id, item.lane.id, other, str(state.failure.evidence["reason"])))
    else:
        item.state = Publishing(None, None, state.failure)
        out.append(do.Publish(item.work_id, None, state.failure))


def copy_is_over(c: Campaign, copy: Item, out: list[Instruction]) -> None:
    """Whoever waits for the original waits until the work is over wherever it went."""
    original = c.items.get(copy.original or "")
    if original is not None and isinstance(original.state, Following):
        failure = original.state.failure
        c.settle(original, Followed, "hole", failure, out)
