"""Service: whether devices, and the run as a whole, still take work.

Devices come, go down behind their breaker, come back after a probe and a trial, are quarantined or given up; the run
is stopped by a person or by the controller's own full disk. What cannot be measured any more becomes a hole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidewinder.core import events as ev
from sidewinder.core import failover, killing, stragglers
from sidewinder.core import instructions as do
from sidewinder.core.breaker import Closed, HalfOpen, Open, Probing
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item
from sidewinder.core.lane import Lane, OutOfService
from sidewinder.core.lifecycle import (
    QUEUED,
    BackingOff,
    Drained,
    Killing,
    Moving,
    Publishing,
    Queued,
    Running,
    Waiting,
)
from sidewinder.core.retry import wait_s
from sidewinder.core.turns import Group
from sidewinder.errors import InternalError
from sidewinder.model import AttemptId, Failure, FailureClass

if TYPE_CHECKING:
    from sidewinder.core.campaign import Campaign


class Stop(NamedTuple):
    """Nothing new starts any more. ``kill``: what runs is stopped too."""

    reason: str
    kill: bool


# -- devices and work arrive ------------------------------------------------------------------------------------------


def on_device_added(c: Campaign, event: ev.DeviceAdded, out: list[Instruction]) -> None:
    device = event.device
    if device.id in c.lanes:
        raise InternalError(f"device {device.id!r} was added twice")
    name = device.resource_group
    group = Group(None) if name is None else c.groups.setdefault(name, Group(name))
    lane = Lane(device, group, event.policy or c.policy, event.name, event.outlives_s)
    was_tight = group.is_tight
    group.join(lane)
    c.lanes[device.id] = lane
    for member in group.members:  # a device that was alone may have company now
        member.update_gate()
        probe_if_due(c, member, out)
        for straggler in member.stragglers.values() if group.is_tight and not was_tight else ():
            stragglers.tell(c, member, straggler, out)
    for attempt in event.in_flight:
        stragglers.leave(c, lane, attempt, c.now_s + lane.outlives_s, out)
    earlier = event.earlier
    if earlier is not None:
        # Asked at once, before any of its points is given up: it may be well again since long ago.
        lane.quarantine = earlier.reason if earlier.quarantined else None
        lane.breaker.resume(earlier.reason, earlier.down_s, c.now_s)
        probe(c, lane, out)


def on_points_queued(c: Campaign, event: ev.PointsQueued, out: list[Instruction]) -> None:
    touched: dict[str, Lane] = {}
    for work in event.works:
        item = admit(c, work, out)
        touched[item.lane.id] = item.lane
        if c.stop is not None:
            cancel(c, item, out)
        else:
            take_in(c, item, out)
    for lane in touched.values():
        c.wake(lane)


def admit(c: Campaign, work: ev.Work, out: list[Instruction]) -> Item:
    lane = c.lanes.get(work.device)
    if lane is None:
        raise InternalError(f"{work.work_id!r} was queued for device {work.device!r}, which was never added")
    if work.work_id in c.items:
        raise InternalError(f"{work.work_id!r} was queued twice")
    item = Item(work, lane)
    before = c.done.pop(work.work_id, None)
    if before is not None and not item.doubtful:
        item.n = max(item.n, before.n + 1)  # forced again within one invocation: numbers only grow
    c.items[work.work_id] = item
    if item.doubtful:
        may_run(c, item, out)
    return item


def take_in(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """Queue an item that is new here."""
    left = AttemptId(item.work_id, item.n)
    if item.doubtful and left in c.evictions:
        killing.inherit(c, item, left, out)
    else:
        enqueue(c, item, out)


def may_run(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """An earlier invocation started this work's attempt: until the device was asked it may run."""
    lane, straggler = item.lane, item.lane.stragglers.get(item.work_id)
    item.may_run_until_s = c.now_s + lane.outlives_s if straggler is None else straggler.until_s
    if straggler is None:
        stragglers.leave(c, lane, AttemptId(item.work_id, item.n), item.may_run_until_s, out)


def enqueue(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """Put a queued item where its device looks for work, or into a hole if the device takes none."""
    lane = item.lane
    if item.exclusive:
        lane.jobs.push(item)
    elif lane.out_of_service is not None:
        hole(c, item, lane.out_of_service.reason, lane.out_of_service.cause, out)
        return
    else:
        lane.points.push(item)
        if lane.gate is not None:
            probe_if_due(c, lane, out)


def give_place(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """Its slot and turn are another's from now on: wait for a turn again, where there will be one."""
    item.state = QUEUED
    item.attempt = None
    enqueue(c, item, out)
    c.wake(item.lane)


def step_back(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """Nothing of it runs, and its group is full with what others may still run: wait for a turn again."""
    c.let_go(item)
    item.state = QUEUED
    enqueue(c, item, out)
    c.wake(item.lane)


# -- health of a device -----------------------------------------------------------------------------------------------


def failed(
    c: Campaign, lane: Lane, work_id: str | None, opened: bool, reason: str, out: list[Instruction], patience: int = 2
) -> None:
    """After a transport failure, of this work if there is one: announce that the breaker opened, or let the device rest
    once so many came in a row."""
    breaker = lane.breaker
    if opened:
        went_down(c, lane, work_id, reason, out)
        if gave_up(c, lane, out):
            return
    elif isinstance(breaker.state, Closed) and breaker.in_row >= patience and lane.rest_timer is None:
        # One failure may be the point's bad luck, so another point may start at once. Two in a row are the device's:
        # without a rest a blip of a second would fail three points in as many milliseconds and open the breaker.
        delay_s = wait_s(lane.policy.retry, breaker.in_row, c.rng)
        lane.rest_timer = c.set_timer("rest", lane, c.now_s + delay_s, out)
    lane.update_gate()
    probe_if_due(c, lane, out)


def heard(c: Campaign, lane: Lane) -> None:
    """The device answered, whatever it said."""
    if not lane.reached:
        lane.reached = True
        lane.update_gate()
        c.wake(lane)


def went_down(c: Campaign, lane: Lane, work_id: str | None, reason: str, out: list[Instruction]) -> None:
    breaker = lane.breaker
    state = breaker.state
    assert isinstance(state, Open)
    lane.rest_timer = None
    lane.update_gate()
    c.set_timer("cooldown", lane, state.until_s, out)
    fields = {"reason": reason[:600], "trips": breaker.trips, **health(c, lane)}
    out.append(do.Note("device_down", lane.id, work_id, fields))


def health(c: Campaign, lane: Lane) -> dict[str, Any]:
    """What every note about a device that is down says of it."""
    state = lane.breaker.state
    known = {"failures": lane.breaker.failures, "down_s": down_s(c, lane)}
    return {**known, "probe_in_s": max(0.0, state.until_s - c.now_s)} if isinstance(state, Open) else known


def down_s(c: Campaign, lane: Lane) -> float:
    since_s = lane.breaker.down_since_s
    return 0.0 if since_s is None else c.now_s - since_s


def gave_up(c: Campaign, lane: Lane, out: list[Instruction]) -> bool:
    """Down for too long, by a probe or trial that just failed: drain the device's queue, the others go on (M-116).

    Only what this invocation has seen counts: a device that was down all night may have come back a minute ago.
    """
    limit_s, breaker = lane.device.give_up_after_s, lane.breaker
    since_s = breaker.down_here_since_s
    if limit_s is None or lane.out_of_service is not None or since_s is None or not breaker.tests_failed:
        return False
    here_s = c.now_s - since_s
    if here_s < limit_s:
        return False
    reason = (
        f"{lane.name} was taken out of service: no run completed for {here_s:.0f} s "
        f"after repeated transport failures (last: {breaker.reason})"
    )
    out.append(do.Note("given_up", lane.id, None, {"reason": reason, **health(c, lane)}))
    take_out(c, lane, OutOfService(reason, FailureClass.TRANSPORT), out)
    return True


def completed(c: Campaign, item: Item, out: list[Instruction]) -> None:
    """A run of this item came back: the device works."""
    lane = item.lane
    was_down_s, failed_tests = down_s(c, lane), lane.breaker.tests_failed
    out_of_service = lane.out_of_service
    quarantined = out_of_service is not None and out_of_service.cause is FailureClass.DEVICE
    if lane.breaker.completed() and not quarantined:  # a run in another slot that was still going ends no quarantine
        fields = {"recoveries": lane.breaker.recoveries, "down_s": was_down_s, "failed_tests": failed_tests}
        out.append(do.Note("device_up", lane.id, item.work_id, fields))
    lane.rest_timer = None
    lane.update_gate()
    c.wake(lane)


def lane_timer(c: Campaign, lane: Lane, timer: str, out: list[Instruction]) -> None:
    """A cooldown or a rest is over, or the time of an attempt that may have run all the while."""
    if timer == lane.rest_timer:
        lane.rest_timer = None
        lane.update_gate()
        c.wake(lane)
    elif stragglers.over(c, lane, timer):
        return
    probe_if_due(c, lane, out)


def probe_if_due(c: Campaign, lane: Lane, out: list[Instruction]) -> None:
    """One cheap probe per cooldown, and none for a device that nobody waits for. A device that shares its turns and
    was not heard of is called before it takes one: a connection that never comes would hold up the others."""
    state = lane.breaker.state
    if not lane.points.waiting or c.stop is not None:
        return
    if isinstance(state, Open):
        if c.now_s >= state.until_s:
            probe(c, lane, out)
    elif isinstance(state, Closed | HalfOpen) and lane.must_be_called and lane.rest_timer is None and not lane.calling:
        lane.calling = True
        out.append(do.Probe(lane.id, call=True))


def probe(c: Campaign, lane: Lane, out: list[Instruction]) -> None:
    lane.breaker.probe()
    lane.update_gate()
    if not lane.calling:  # else its answer serves as well
        out.append(do.Probe(lane.id))


def on_probe_answered(c: Campaign, event: ev.ProbeAnswered, out: list[Instruction]) -> None:
    lane = c.lanes[event.device]
    called, lane.calling = lane.calling, False
    if not isinstance(lane.breaker.state, Probing):
        if called and not lane.reached:
            call_answered(c, lane, event, out)
        elif not event.ok:
            # a run came back meanwhile: it knows better than the probe, which is counted and written down
            lane.breaker.failures += 1
            unanswered(c, lane, event.error, out)
        return
    lane.reached = event.ok
    lane.breaker.probe_answered(event.ok, event.error, c.now_s)
    if event.ok:
        if lane.quarantine is not None:
            out.append(do.Note("released", lane.id, None, {"reason": lane.quarantine, **health(c, lane)}))
            lane.quarantine = None
        lane.update_gate()
        c.wake(lane)
        return
    out.append(do.Note("probe_failed", lane.id, None, {"error": event.error[:600], **health(c, lane)}))
    lane.update_gate()
    if event.unfit:
        quarantine(c, lane, event.error, out)
    elif lane.quarantine is not None:
        quarantine(c, lane, lane.quarantine, out, f", and its probe failed ({event.error})")
    elif not gave_up(c, lane, out):
        state = lane.breaker.state
        assert isinstance(state, Open)
        c.set_timer("cooldown", lane, state.until_s, out)


def call_answered(c: Campaign, lane: Lane, event: ev.ProbeAnswered, out: list[Instruction]) -> None:
    """A device in service was called before it takes a turn. No answer costs no point anything."""
    if event.ok:
        heard(c, lane)
    elif event.unfit:
        quarantine(c, lane, event.error, out)
    elif lane.out_of_service is None:
        opened = lane.breaker.failed(None, event.error, c.now_s)
        unanswered(c, lane, event.error, out)
        failed(c, lane, None, opened, event.error, out, patience=1)


def unanswered(c: Campaign, lane: Lane, error: str, out: list[Instruction]) -> None:
    out.append(do.Note("unanswered", lane.id, None, {"error": error[:600], **health(c, lane)}))


# -- out of service ---------------------------------------------------------------------------------------------------


def on_quarantined(c: Campaign, event: ev.DeviceQuarantined, out: list[Instruction]) -> None:
    quarantine(c, c.lanes[event.device], event.reason, out)


def quarantine(c: Campaign, lane: Lane, reason: str, out: list[Instruction], more: str = "") -> None:
    """The device is unfit until a person or a passed probe of a later invocation says otherwise."""
    if lane.out_of_service is not None:
        return
    out.append(do.Note("quarantined", lane.id, None, {"reason": reason[:600], **health(c, lane)}))
    take_out(c, lane, OutOfService(f"{lane.name} is quarantined: {reason}{more}", FailureClass.DEVICE), out)


def take_out(c: Campaign, lane: Lane, out_of_service: OutOfService, out: list[Instruction]) -> None:
    """No point of this device starts any more; what runs in other slots goes on."""
    lane.out_of_service = out_of_service
    lane.update_gate()
    lane.due.clear()
    for item in lane.points.drain():
        hole(c, item, out_of_service.reason, out_of_service.cause, out)
    for item in list(c.items.values()):
        if item.lane is lane and isinstance(item.state, BackingOff | Waiting):
            hole(c, item, out_of_service.reason, out_of_service.cause, out)


def hole(c: Campaign, item: Item, reason: str, cause: FailureClass, out: list[Instruction], **evidence: Any) -> None:
    """This point will not be measured on its device in this invocation: a record that says so keeps the gap visible.
    Where the lab declares it, another device takes a copy over."""
    c.let_go(item)
    message = f"not attempted: {reason}. Run the same command again to retry this point."
    failure = Failure(FailureClass.NOT_ATTEMPTED, message, {"cause": cause.value, "reason": reason, **evidence})
    stand_in = failover.stand_in(c, item)
    state: Publishing | Moving
    if stand_in is not None:
        state = Moving(stand_in, failure)
        out.append(do.Move(item.work_id, item.lane.id, stand_in, reason))
    else:
        state = Publishing(None, None, failure)
        out.append(do.Publish(item.work_id, None, failure))
    if isinstance(item.state, Queued | BackingOff | Waiting):
        c.move(item, Drained, state)
    else:
        item.state = state


# -- stopping ---------------------------------------------------------------------------------------------------------


def on_cancel(c: Campaign, event: ev.CancelRequested, out: list[Instruction]) -> None:
    kill = not event.drain or (c.stop is not None and c.stop.kill)
    stop(c, c.stop.reason if c.stop is not None else "stopped on request", kill, out)


def stop_for_disk(c: Campaign, item: Item, error: str, out: list[Instruction]) -> None:
    """The controller's disk refused a file: take no new work anywhere, let what runs end, say so once."""
    if c.stop is None:
        reason = f"the controller could not write to its own disk ({error})"
        out.append(do.Note("stopped", item.lane.id, item.work_id, {"reason": reason}))
        stop(c, reason, False, out)
    cancel(c, item, out, f"not recorded: the controller could not write to its own disk ({error})")


def stop(c: Campaign, reason: str, kill: bool, out: list[Instruction]) -> None:
    c.stop = Stop(reason, kill)
    for lane in c.lanes.values():
        lane.due.clear()
        for item in lane.points.drain() + lane.jobs.drain():
            cancel(c, item, out)
    for item in list(c.items.values()):
        state = item.state
        if isinstance(state, BackingOff | Waiting):
            cancel(c, item, out)
        elif kill and isinstance(state, Running):
            # Attach still owes its answer, so two are to come.
            c.move(item, ev.CancelRequested, Killing(state.attempt, state.slot, True, 2))
            out.append(do.Kill(state.attempt, item.lane.id))
        elif kill and isinstance(state, Killing):
            item.state = state._replace(cancel=True)


def cancel(c: Campaign, item: Item, out: list[Instruction], message: str | None = None) -> None:
    reason = c.stop.reason if c.stop is not None else "the attempt was cancelled"
    c.finish(item, "cancelled", Failure(FailureClass.CANCELLED, message or f"not done: {reason}"), out)


Handler = Callable[["Campaign", Any, list[Instruction]], None]

HANDLERS: Final[dict[type[Any], Handler]] = {
    ev.DeviceAdded: on_device_added,
    ev.PointsQueued: on_points_queued,
    ev.ProbeAnswered: on_probe_answered,
    ev.CancelRequested: on_cancel,
    ev.DeviceQuarantined: on_quarantined,
}
