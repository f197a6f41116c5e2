"""An occupancy: somebody's run is in the slot in which an attempt was to start.

It is ours and wanted (adopt it, or change places with it), ours and forgotten (end it), or another controller's (wait).
The device is the truth here: it names the holder, whatever the core believed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidewinder.core import events as ev
from sidewinder.core import failing, service
from sidewinder.core import instructions as do
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, note, start
from sidewinder.core.lifecycle import (
    HOLDS_SLOT,
    BackingOff,
    Claiming,
    Evicting,
    Kicked,
    Queued,
    Starting,
    Waiting,
)
from sidewinder.model import AttemptId, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign

#: How often a device whose slot is held by another controller is asked again.
BUSY_POLL_S: Final = 5.0


def on_busy(c: Campaign, item: Item, event: ev.AttemptBusy, out: list[Instruction]) -> None:
    """Somebody's run is in the slot: ours (adopt it, change places with it, or end it) or another controller's."""
    state = item.state
    assert isinstance(state, Starting)
    service.heard(c, item.lane)
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
    if failing.is_trial(item):
        lane.breaker.try_another()
    if isinstance(other.state, Queued):
        lane.points.remove(other)
    c.move(other, Kicked, Claiming(holder, slot))
    c.claim(other, slot, out)
    service.give_place(c, item, out)


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
    limit_s = lane.policy.busy_wait_s
    if c.now_s - since_s >= limit_s:
        reason = f"{lane.name} was busy with {holder} of another controller for {c.now_s - since_s:.0f} s"
        # Its device is well, and somebody else's: no reason to move.
        item.stand_ins_tried = lane.device.failover_to
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
