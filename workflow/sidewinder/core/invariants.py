"""An invariant: a sentence about a campaign that is true between any two events, whatever happened.

Tests check them all after every event; they cost O(open work), so production does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidewinder.core.breaker import Closed, HalfOpen, Trial
from sidewinder.core.lane import Lane
from sidewinder.core.lifecycle import HOLDS_SLOT, BackingOff, Done, Publishing, Queued, Waiting
from sidewinder.core.turns import Group

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


def check(c: Campaign) -> None:
    """Raise ``AssertionError`` naming the first sentence that is not true."""
    slots: dict[Lane, list[int]] = {lane: [] for lane in c.lanes.values()}
    queued: dict[Lane, int] = dict.fromkeys(slots, 0)
    turns: dict[Group, int] = {lane.group: 0 for lane in slots}
    for work_id, item in c.items.items():
        state, lane = item.state, item.lane
        kind = type(state)
        assert work_id not in c.done, f"{work_id} is open and done"
        assert kind is not Done, f"{work_id} is done and still open"
        assert item.repeats <= lane.policy.retry.max_attempts, f"{work_id} was tried too often"
        if kind is Queued:
            queued[lane] += 1
            assert item.ticket, f"{work_id} is queued but in no queue"
            assert item.attempt is None, f"{work_id} is queued and in attempt {item.attempt}"
            assert item.exclusive or lane.out_of_service is None, f"{work_id} waits for {lane.id}, which is out"
            continue
        assert not item.ticket, f"{work_id} is {kind.__name__} and in a queue"
        assert item.exclusive or item.attempt == getattr(state, "attempt", None), f"{work_id}: {item.attempt}, {state}"
        slot = getattr(state, "slot", None)
        assert (kind in HOLDS_SLOT) == (slot is not None) or kind is Publishing, f"{work_id}: {state}"
        if slot is not None:
            slots[lane].append(slot)
            turns[lane.group] += kind is not Waiting
        if kind is BackingOff or kind is Waiting:
            timer = state.timer  # type: ignore[union-attr]
            if timer is not None:
                assert c.timers[timer].target is item, f"{work_id} waits for a timer that is not set"
            else:
                assert item in lane.due, f"{work_id} has waited long enough and nobody will start it"
    for lane, held in slots.items():
        _check_lane(lane, held, queued[lane], stopped=c.stop is not None)
        for work_id, straggler in lane.stragglers.items():
            assert c.timers[straggler.timer].target is lane, f"nobody will forget {straggler.attempt}"
            attempt = getattr(c.items.get(work_id), "attempt", None)
            assert attempt != straggler.attempt, f"{attempt} straggles, and it is in touch"
    for group, taken in turns.items():
        _check_group(group, taken)


def _check_lane(lane: Lane, held: list[int], queued: int, *, stopped: bool) -> None:
    free = lane.slots.free
    assert len(held) + len(free) == len({*held, *free}) == len(lane.slots), f"{lane.id}: {held} held, {free} free"
    waiting = lane.points.waiting + lane.jobs.waiting
    assert waiting == queued, f"{lane.id}: {queued} queued, {waiting} counted"
    gate = lane.gate
    lane.update_gate()
    assert gate == lane.gate, f"{lane.id}: its gate says {gate!r}, its state {lane.gate!r}"
    state = lane.breaker.state
    if isinstance(state, Trial):
        assert gate is not None, f"{lane.id} is on trial and takes more points"
    if lane.must_be_called and isinstance(state, Closed | HalfOpen) and lane.points.waiting and not stopped:
        assert lane.calling or lane.rest_timer, f"{lane.id} is to be called before its turn, and nobody calls it"


def _check_group(group: Group, held: int) -> None:
    assert held == group.held <= group.limit, (
        f"group {group.name}: {held} turns, {group.held} booked, {group.limit} allowed"
    )
    stragglers = slots = 0
    may_ask, may_start = held < group.limit, held < group.room
    for lane in group.members:
        stragglers += len(lane.stragglers)
        slots += len(lane.slots)
        if may_ask:
            assert not lane.may_ask(), f"group {group.name} keeps a turn and {lane.id} could ask with it"
        if may_start:
            assert not lane.is_ready(), f"group {group.name} has a turn to give and {lane.id} could use it"
    kept = stragglers if group.limit < slots else 0
    assert group.room == group.limit - kept, f"group {group.name}: {kept} turns are kept, {group.room} booked as free"
