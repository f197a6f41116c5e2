"""An explanation: why one piece of work is where it is, and what would move it, from the data that decide it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sidewinder.core.breaker import Closed, HalfOpen, Open, Probing, Trial
from sidewinder.core.item import Item
from sidewinder.core.lane import Lane
from sidewinder.core.lifecycle import (
    Asking,
    BackingOff,
    Claiming,
    Evicting,
    Following,
    Killing,
    Moving,
    Occupying,
    Parsing,
    Publishing,
    Queued,
    Running,
    Starting,
    Waiting,
)

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


def explain(c: Campaign, work_id: str, now_s: float) -> list[str]:
    done = c.done.get(work_id)
    if done is not None:
        return [f"{work_id} is over: {done.outcome} on {done.device}"]
    item = c.items.get(work_id)
    if item is None:
        return [f"{work_id} is not part of this invocation"]
    lines = [f"{work_id} on {item.lane.name}: {_where(c, item, now_s)}"]
    if isinstance(item.state, Queued):
        lines += _what_blocks(item, now_s)
    if item.repeats or item.preemptions:
        budget = item.lane.policy.retry.max_attempts
        lines.append(f"transport has cost {item.repeats} of {budget} attempts; preempted {item.preemptions} time(s)")
    lines.append(f"its story: {c.story(item)}")
    return lines


def _where(c: Campaign, item: Item, now_s: float) -> str:
    state = item.state
    match state:
        case Queued():
            ahead = sum(1 for other in item.lane.points.items() if (other.priority, -other.position) > _urgency(item))
            return f"waits in the queue, about {ahead} ahead of it"
        case BackingOff(timer):
            return f"backs off after a failure on the way, {_left_s(c, timer, now_s):.0f} s left"
        case Waiting(_, slot, holder, timer):
            since_s = now_s - item.lane.busy_since_s.get(slot, now_s)
            limit_s = item.lane.policy.busy_wait_s
            return f"waits for {holder} of another controller, since {since_s:.0f} s of at most {limit_s:g} s"
        case Claiming():
            return f"attempt {item.n} is being written to the journal"
        case Asking():
            return f"the device is asked what became of attempt {item.n}"
        case Starting(_, slot):
            return f"attempt {item.n} is being started in slot {slot}"
        case Evicting(_, slot, holder):
            return f"waits until {holder}, which nobody wants, is proven dead in slot {slot}"
        case Running(_, slot):
            return f"attempt {item.n} runs in slot {slot}"
        case Killing():
            return f"attempt {item.n} is being stopped and proven dead"
        case Parsing():
            return f"the output of attempt {item.n} is being read"
        case Publishing():
            return "its record is being written"
        case Moving(to_device):
            return f"{c.lanes[to_device].name} is looked at, to stand in for its own device"
        case Following(copy):
            return f"never measured there; its copy {copy} on another device is not over yet"
        case Occupying():
            return "runs in its turn"
        case _:
            return "is over"


def _urgency(item: Item) -> tuple[int, int]:
    return item.priority, -item.position


def _left_s(c: Campaign, timer: str, now_s: float) -> float:
    entry = c.timers.get(timer)
    return 0.0 if entry is None else max(0.0, entry.at_s - now_s)


def _what_blocks(item: Item, now_s: float) -> list[str]:
    lane, group = item.lane, item.lane.group
    reasons = []
    if lane.gate is not None and not item.exclusive:
        reasons.append(lane.gate)
        state = lane.breaker.state
        if isinstance(state, Open):
            reasons.append(f"it is probed in {max(0.0, state.until_s - now_s):.0f} s")
    if not lane.slots.free:
        reasons.append(f"all {len(lane.slots)} slot(s) of {lane.name} are in use")
    if group.held >= group.room and group.name is not None:
        names = ", ".join(member.name for member in group.members)
        reasons.append(f"all {group.limit} turn(s) of group {group.name} ({names}) are taken")
        for member in group.members if group.is_tight else ():
            for straggler in member.stragglers.values():
                left_s = straggler.until_s - now_s
                reasons.append(
                    f"one is kept for {straggler.attempt}, which may still run on {member.name}, "
                    f"for {left_s:.0f} s at most"
                )
    return reasons


def board(c: Campaign) -> dict[str, dict[str, Any]]:
    counts: dict[str, Counter[str]] = {lane_id: Counter() for lane_id in c.lanes}
    for item in c.items.values():
        counts[item.lane.id][_column(item)] += 1
    return {
        lane.id: {
            "service": _service(lane),
            "reason": lane.gate,
            "queued": counts[lane.id]["queued"],
            "waiting": counts[lane.id]["waiting"],
            "running": counts[lane.id]["running"],
            **{outcome: lane.outcomes[outcome] for outcome in ("ok", "failed", "hole", "cancelled")},
            "failures": lane.breaker.failures,
            "trips": lane.breaker.trips,
            "recoveries": lane.breaker.recoveries,
        }
        for lane in c.lanes.values()
    }


def _column(item: Item) -> str:
    if isinstance(item.state, Queued):
        return "queued"
    return "waiting" if isinstance(item.state, BackingOff | Waiting | Moving | Following) else "running"


def _service(lane: Lane) -> str:
    if lane.out_of_service is not None:
        return "quarantined" if lane.out_of_service.cause.value == "device" else "given up"
    match lane.breaker.state:
        case Closed():
            return "up"
        case Open():
            return "down"
        case Probing() | HalfOpen() | Trial():
            return "half-open"
