"""Mutants: the core with one promise broken on purpose. The simulation must catch every one, or it proves nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from sidewinder.core import attempts, campaign, failing, failover, killing, policy, service, stragglers, turns
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.breaker import Breaker, Open
from sidewinder.core.campaign import Campaign
from sidewinder.core.lane import Lane
from sidewinder.core.lifecycle import Asking, Following, Parsing, Publishing, Running, State
from sidewinder.model import Evidence, FailureClass
from sidewinder.testing import FakeClock, Simulation, Violation

SEEDS = range(1_000_000, 1_000_800)

Patch = pytest.MonkeyPatch


ANY_STATE = frozenset(State.__args__)  # type: ignore[attr-defined]


def handler(patch: Patch, event: type, new: Callable[..., None]) -> None:
    """Another handler for this event, in every state in which it has one; whatever state follows is let pass."""
    steps = campaign._WORK_STEPS.get(event) or campaign._ATTEMPT_STEPS[event]
    for state in list(steps):
        patch.setitem(steps, state, (new, ANY_STATE))


def results_are_retried(patch: Patch) -> None:
    """Promise 2: a run that said no is tried again."""
    real = policy.classify

    def classify(evidence: Evidence) -> FailureClass | None:
        found = real(evidence)
        return FailureClass.TRANSPORT if found is FailureClass.MEASUREMENT else found

    patch.setattr(attempts, "classify", classify)


def memory_is_retried(patch: Patch) -> None:
    """Promise 2: a pinned point that ran out of memory is tried again."""
    patch.setitem(policy.TABLE, FailureClass.MEMORY, policy.TABLE[FailureClass.TRANSPORT])  # type: ignore[arg-type]


def retries_never_end(patch: Patch) -> None:
    """Promise 3: nobody counts attempts."""
    real = failing.lost_contact

    def lost_contact(c: Campaign, item: Any, error: str, costs: bool, out: list[Any]) -> None:
        real(c, item, error, False, out)

    patch.setattr(failing, "lost_contact", lost_contact)

    def charge(c: Campaign, item: Any, gone: int, why: str, out: list[Any]) -> bool:
        failing.note_retry(c, item, FailureClass.TRANSPORT, gone, why, out, over=True)
        return True

    patch.setattr(failing, "charge", charge)


def repeats_are_not_written_down(patch: Patch) -> None:
    """Promise 3: a retry without a line in the ledger."""
    patch.setattr(failing, "note_retry", lambda *_, **__: None)


def work_moves(patch: Patch) -> None:
    """Promise 4: a point goes to another device."""
    real = service.enqueue

    def enqueue(c: Campaign, item: Any, out: list[Any]) -> None:
        if item.failures_in_row:
            item.lane = next(iter(c.lanes.values()))
        real(c, item, out)

    patch.setattr(service, "enqueue", enqueue)


def groups_are_ignored(patch: Patch) -> None:
    """Promise 5: a group gives one turn too many."""
    real = turns.Group.join

    def join(self: Any, lane: Any) -> None:
        real(self, lane)
        self.limit += self.name is not None

        self.reckon()

    patch.setattr(turns.Group, "join", join)


def stragglers_hold_no_turn(patch: Patch) -> None:
    """Promise 5: another member starts beside a run whose link is lost, or that an earlier controller left."""
    patch.setattr(stragglers, "leave", lambda *_, **__: None)


def a_kept_turn_is_kept_for_ever(patch: Patch) -> None:
    """Promise 5: the turn of a member that died in mid-run is never given back."""
    real = stragglers.over

    def over(c: Campaign, lane: Any, timer: str) -> bool:
        for straggler in lane.stragglers.values():
            if straggler.timer == timer:
                c.timers[timer] = campaign.Timer(c.now_s, lane)
                return True
        return real(c, lane, timer)

    patch.setattr(stragglers, "over", over)


def the_dead_are_not_called(patch: Patch) -> None:
    """Promise 5: a member that does not answer takes a turn to find that out."""
    patch.setattr(Lane, "must_be_called", property(lambda self: False))


def the_journal_is_for_what_is_queued(patch: Patch) -> None:
    """Promises 5 and 7: what an earlier invocation left running counts only once its point is handed over."""
    real = service.on_device_added
    forget = lambda c, event, out: real(c, event._replace(in_flight=()), out)  # noqa: E731
    patch.setitem(service.HANDLERS, ev.DeviceAdded, forget)


def nobody_goes_to_the_back(patch: Patch) -> None:
    """Promise 5: the member that had a turn keeps the front of the rotation."""

    def next_lane(self: Any) -> Any:
        for lane in self._members:
            if lane.is_ready():
                self.held += 1
                return lane
        return None

    patch.setattr(turns.Group, "next_lane", next_lane)


def back_off_keeps_the_turn(patch: Patch) -> None:
    """Promise 5: a member that backs off holds its group."""
    real = Campaign.let_go

    def let_go(self: Campaign, item: Any) -> None:
        held = item.lane.group.held
        real(self, item)
        if isinstance(item.state, Running):
            item.lane.group.held = held

    patch.setattr(Campaign, "let_go", let_go)


def unproven_is_taken_for_dead(patch: Patch) -> None:
    """Promise 9: the next attempt starts although the last one may live."""

    def on_kill_unproven(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        killing.on_kill_proven(c, item, ev.KillProven(event.attempt), out)

    handler(patch, ev.KillUnproven, on_kill_unproven)


def nobody_asks(patch: Patch) -> None:
    """Promises 2, 8 and 9: after a broken link the next attempt simply starts."""
    real = attempts.on_journaled

    def on_journaled(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if item.doubtful and item.failures_in_row:
            item.doubtful = False
            item.n += 1
            c.claim(item, item.state.slot, out)
            return
        real(c, item, event, out)

    handler(patch, ev.Journaled, on_journaled)


def lost_needs_no_proof(patch: Patch) -> None:
    """Promise 9: an attempt whose runner died is followed by the next one without a kill."""
    real = attempts.on_status

    def on_status(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if event.state == "lost" and c.stop is None:
            item.doubtful = False
            item.n += 1
            c.claim(item, item.state.slot, out)
            return
        real(c, item, event, out)

    handler(patch, ev.StatusAnswered, on_status)


def started_before_journaled(patch: Patch) -> None:
    """Promise 7: the start leaves with the claim, not after it."""
    real = Campaign.claim

    def claim(self: Campaign, item: Any, slot: int, out: list[Any]) -> None:
        real(self, item, slot, out)
        if not item.doubtful:
            out.append(do.StartAttempt(item.attempt, item.lane.id, slot))

    patch.setattr(Campaign, "claim", claim)


def forgotten_before_recorded(patch: Patch) -> None:
    """Promise 7: the device may forget its result before the record is on disk."""
    real = attempts.on_parsed

    def on_parsed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        real(c, item, event, out)
        assert isinstance(item.state, Publishing)
        out.append(do.Ack(event.attempt, item.lane.id))

    handler(patch, ev.Parsed, on_parsed)


def holes_are_not_reported(patch: Patch) -> None:
    """Promise 1: what a dead device leaves behind is dropped."""
    real = service.take_out

    def take_out(c: Campaign, lane: Any, out_of_service: Any, out: list[Any]) -> None:
        for item in lane.points.drain():
            del c.items[item.work_id]
        real(c, lane, out_of_service, out)

    patch.setattr(service, "take_out", take_out)


def a_full_disk_is_a_result(patch: Patch) -> None:
    """Promise 1: the record could not be written and the point is reported done."""

    def on_publish_failed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        c.finish(item, "ok", None, out)

    handler(patch, ev.PublishFailed, on_publish_failed)


def late_events_count(patch: Patch) -> None:
    """B30: an answer of an attempt that is over is taken for one of the current attempt."""

    def drop(self: Campaign, attempt: Any, kind: Any, out: list[Any]) -> None:
        item = self.items.get(attempt.work_id)
        told = (ev.TransportFailed, ev.AttemptDied, ev.ResultArrived, ev.StatusAnswered)
        if item is not None and kind in told and isinstance(item.state, Running | Parsing):
            self.finish(item, "failed", None, out)

    patch.setattr(Campaign, "_drop", drop)


def numbers_start_again(patch: Patch) -> None:
    """Promise 7: after a restart the attempts of a point are counted from one."""
    real = service.on_points_queued

    def on_points_queued(c: Campaign, event: Any, out: list[Any]) -> None:
        works = tuple(w._replace(last_attempt=0, in_flight=False) for w in event.works)
        real(c, ev.PointsQueued(works), out)

    patch.setitem(service.HANDLERS, ev.PointsQueued, on_points_queued)


def early_timers_count(patch: Patch) -> None:
    """Promise 10: a clock that jumps ends a wait."""
    real = Campaign._timer_fired

    def fired(self: Campaign, event: Any, out: list[Any]) -> Any:
        timer = self.timers.get(event.timer)
        if timer is not None:
            self.timers[event.timer] = timer._replace(at_s=0.0)
        return real(self, event, out)

    patch.setattr(Campaign, "_timer_fired", fired)


def a_slot_is_given_back_too_soon(patch: Patch) -> None:
    """Promise 9: parsing one point overlaps the next on the same device."""
    real = attempts.on_result

    def on_result(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        real(c, item, event, out)
        if isinstance(item.state, Parsing):
            item.lane.slots.free.append(item.state.slot)
            item.lane.group.held -= 1
            c.wake(item.lane)

    handler(patch, ev.ResultArrived, on_result)


def probes_without_end(patch: Patch) -> None:
    """Promise 6: whoever joins the queue of a device that is down has it probed."""
    real = service.probe_if_due

    def probe_if_due(c: Campaign, lane: Any, out: list[Any]) -> None:
        if isinstance(lane.breaker.state, Open):
            lane.breaker.state = lane.breaker.state._replace(until_s=c.now_s)
        real(c, lane, out)

    patch.setattr(service, "probe_if_due", probe_if_due)


def what_may_run_is_not_asked(patch: Patch) -> None:
    """Promise 7: after a restart the next attempt starts at once."""
    real = service.on_points_queued

    def on_points_queued(c: Campaign, event: Any, out: list[Any]) -> None:
        real(c, ev.PointsQueued(tuple(w._replace(in_flight=False) for w in event.works)), out)

    patch.setitem(service.HANDLERS, ev.PointsQueued, on_points_queued)


def stopped_points_are_forgotten(patch: Patch) -> None:
    """Promise 1: what was not started when a person stopped the run is told to nobody."""
    real = service.stop

    def stop(c: Campaign, reason: str, kill: bool, out: list[Any]) -> None:
        for lane in c.lanes.values():
            for item in lane.points.drain():
                del c.items[item.work_id]
        real(c, reason, kill, out)

    patch.setattr(service, "stop", stop)


def a_parser_that_broke_is_asked_again(patch: Patch) -> None:
    """Promise 2: the run is repeated because its output could not be read."""

    def on_parsed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if event.failure is not None and event.failure.failure_class is FailureClass.PARSE:
            failing.fail(c, item, event.failure._replace(failure_class=FailureClass.TRANSPORT), out, ran=True)
            return
        attempts.on_parsed(c, item, event, out)

    handler(patch, ev.Parsed, on_parsed)


def takeovers_are_silent(patch: Patch) -> None:
    """Promise 3: nobody learns that an attempt was adopted or attached to again."""

    def note(item: Any, kind: str, out: list[Any], **fields: Any) -> None:
        if kind not in ("adopted", "reattached"):
            attempts_note(item, kind, out, **fields)

    attempts_note = attempts.note
    patch.setattr(attempts, "note", note)


def a_broken_link_is_the_end(patch: Patch) -> None:
    """Promises 8 and 11: a run whose link broke is taken for dead, and the next attempt follows."""
    real = failing.on_transport_failed

    def on_transport_failed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        was_running = isinstance(item.state, Running)
        real(c, item, event, out)
        if was_running and item.work_id in c.items and item.doubtful:
            failing.note_retry(c, item, FailureClass.TRANSPORT, item.n, event.error, out, over=True)
            item.doubtful, item.n = False, item.n + 1

    handler(patch, ev.TransportFailed, on_transport_failed)


def what_runs_on_is_killed(patch: Patch) -> None:
    """Promise 8: the link is back, the run goes on, and it is ended for a fresh one."""
    real = attempts.on_status

    def on_status(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        lost = event.state == "running" and c.stop is None
        real(c, item, event._replace(state="lost") if lost else event, out)

    handler(patch, ev.StatusAnswered, on_status)


def what_has_finished_is_repeated(patch: Patch) -> None:
    """Promises 2 and 8: the run ended while the link was broken, and its result is left lying there."""
    real = attempts.on_status

    def on_status(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        done = event.state == "finished" and c.stop is None
        real(c, item, event._replace(state="lost") if done else event, out)

    handler(patch, ev.StatusAnswered, on_status)


def the_wall_clock_counts(patch: Patch) -> None:
    """Promise 10: waits are counted by a clock that people set."""
    clocks: list[FakeClock] = []
    real_init, real = Simulation.__init__, Campaign.handle

    def init(self: Simulation, *args: Any, **kwargs: Any) -> None:
        real_init(self, *args, **kwargs)
        clocks.append(self.clock)

    def handle(self: Campaign, event: Any, now_s: float) -> list[Any]:
        return real(self, event, (clocks[-1].utc - FakeClock().utc).total_seconds())

    patch.setattr(Simulation, "__init__", init)
    patch.setattr(Campaign, "handle", handle)


def any_timer_ends_a_wait(patch: Patch) -> None:
    """Promise 10: a timer whose reason is gone ends the wait that came after it."""
    real = Campaign._timer_fired

    def fired(self: Campaign, event: Any, out: list[Any]) -> Any:
        timer = self.timers.get(event.timer)
        if timer is not None and not isinstance(timer.target, Lane):
            newer = getattr(timer.target.state, "timer", None)
            if newer is not None and newer != event.timer:
                self.timers[newer] = self.timers[newer]._replace(at_s=0.0)
                event = ev.TimerFired(newer)
        return real(self, event, out)

    patch.setattr(Campaign, "_timer_fired", fired)


def could_not_look_means_absent(patch: Patch) -> None:
    """Promise 11: a device that could not be asked is taken to have nothing."""
    real = failing.on_transport_failed

    def on_transport_failed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if isinstance(item.state, Asking) and c.stop is None:
            out.append(do.Note("transport_failure", item.lane.id, item.work_id, {}))
            attempts.on_status(c, item, ev.StatusAnswered(event.attempt, "absent"), out)
            return
        real(c, item, event, out)

    handler(patch, ev.TransportFailed, on_transport_failed)


def what_never_came_home_is_a_result(patch: Patch) -> None:
    """Promise 11: a run whose result could not be fetched is published as one, with nothing in it."""
    real = failing.on_transport_failed

    def on_transport_failed(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if isinstance(item.state, Running):
            out.append(do.Note("transport_failure", item.lane.id, item.work_id, {}))
            item.state = Publishing(item.state.attempt, item.state.slot, None)
            out.append(do.Publish(item.work_id, event.attempt, None))
            return
        real(c, item, event, out)

    handler(patch, ev.TransportFailed, on_transport_failed)


def the_lost_were_never_there(patch: Patch) -> None:
    """Promises 9 and 11: an attempt that the device lost is taken for one that never reached it."""
    real = attempts.on_status

    def on_status(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        real(c, item, event._replace(state="absent") if event.state == "lost" else event, out)

    handler(patch, ev.StatusAnswered, on_status)


def devices_start_well(patch: Patch) -> None:
    """Promise 6: a new invocation has forgotten which devices were down."""
    real = service.on_device_added
    forget = lambda c, event, out: real(c, event._replace(earlier=None), out)  # noqa: E731
    patch.setitem(service.HANDLERS, ev.DeviceAdded, forget)


def the_old_night_counts(patch: Patch) -> None:
    """Promise 6: a device is given up for the time it was down before this invocation."""
    real = Breaker.resume

    def resume(self: Breaker, reason: str, down_s: float, now_s: float) -> None:
        real(self, reason, down_s, now_s)
        self.down_here_since_s = now_s - down_s

    patch.setattr(Breaker, "resume", resume)


def given_up_untested(patch: Patch) -> None:
    """Promise 6: a device is given up when it goes down, before any probe."""
    real = Breaker._open

    def opens(self: Breaker, reason: str, now_s: float) -> bool:
        self.tests_failed += 1
        return real(self, reason, now_s)

    patch.setattr(Breaker, "_open", opens)


def given_up_too_soon(patch: Patch) -> None:
    """Promise 6: the first failed probe takes the device out."""
    real = service.gave_up

    def gave_up(c: Campaign, lane: Any, out: list[Any]) -> bool:
        lane.breaker.down_here_since_s = -1e9
        return real(c, lane, out)

    patch.setattr(service, "gave_up", gave_up)


def a_passed_probe_is_enough(patch: Patch) -> None:
    """Promise 6: the downtime ends with a probe instead of a completed run."""
    real = Breaker.probe_answered

    def answered(self: Breaker, ok: bool, reason: str, now_s: float) -> None:
        real(self, ok, reason, now_s)
        if ok:
            self.down_since_s = self.down_here_since_s = None

    patch.setattr(Breaker, "probe_answered", answered)


def a_trial_costs_an_attempt(patch: Patch) -> None:
    """Promise 6: the point that tested the water pays for it."""
    real = failing.lost_contact

    def lost_contact(c: Campaign, item: Any, error: str, costs: bool, out: list[Any]) -> None:
        item.repeats += failing.is_trial(item)
        real(c, item, error, costs, out)

    patch.setattr(failing, "lost_contact", lost_contact)


def failed_probes_are_silent(patch: Patch) -> None:
    """Promise 6: a failed probe leaves no line."""
    real = service.on_probe_answered

    def on_probe_answered(c: Campaign, event: Any, out: list[Any]) -> None:
        real(c, event, out)
        out[:] = [i for i in out if not (isinstance(i, do.Note) and i.kind == "probe_failed")]

    patch.setitem(service.HANDLERS, ev.ProbeAnswered, on_probe_answered)


def the_last_failure_is_not_counted(patch: Patch) -> None:
    """Promise 3: the failure that uses up the last attempt is written down nowhere (mlsys counted trips only)."""
    real = failing.lost_contact

    def lost_contact(c: Campaign, item: Any, error: str, costs: bool, out: list[Any]) -> None:
        real(c, item, error, costs, out)
        if any(isinstance(i, do.Note) and i.kind == "exhausted" for i in out):
            out[:] = [i for i in out if not (isinstance(i, do.Note) and i.kind == "transport_failure")]

    patch.setattr(failing, "lost_contact", lost_contact)


def any_device_stands_in(patch: Patch) -> None:
    """Promise 4: work moves to a device that nobody declared."""
    real = failover.stand_in

    def stand_in(c: Campaign, item: Any) -> str | None:
        found = real(c, item)
        others = [lane.id for lane in c.lanes.values() if lane is not item.lane]
        return found or (others[0] if others and not item.original and not item.stand_ins_tried else None)

    patch.setattr(failover, "stand_in", stand_in)


def the_dead_stand_in(patch: Patch) -> None:
    """Promise 4: work moves to a device that is down or out itself."""

    def stand_in(c: Campaign, item: Any) -> str | None:
        names = [n for n in item.lane.device.failover_to if n not in item.stand_ins_tried]
        return names[0] if names and not item.original and c.stop is None else None

    patch.setattr(failover, "stand_in", stand_in)


def copies_move_on(patch: Patch) -> None:
    """Promise 4: a copy goes round the lab."""
    real = failover.stand_in

    def stand_in(c: Campaign, item: Any) -> str | None:
        original, item.original = item.original, None
        try:
            return real(c, item)
        finally:
            item.original = original

    patch.setattr(failover, "stand_in", stand_in)


def drained_points_stay(patch: Patch) -> None:
    """Promise 4: only who used up its attempts moves, not what a dead device leaves in its queue."""
    real = service.take_out

    def take_out(c: Campaign, lane: Any, out_of_service: Any, out: list[Any]) -> None:
        for item in c.items.values():
            if item.lane is lane:
                item.stand_ins_tried = lane.device.failover_to
        real(c, lane, out_of_service, out)

    patch.setattr(service, "take_out", take_out)


def nobody_waits_for_the_copy(patch: Patch) -> None:
    """Promise 4: the original is reported while its copy still runs, so that the run ends under it."""
    real = attempts.on_published

    def on_published(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        item.copy = None
        real(c, item, event, out)

    handler(patch, ev.Published, on_published)


def the_copy_is_the_result(patch: Patch) -> None:
    """Promises 1 and 4: a moved point is reported as measured."""
    real = failover.copy_is_over

    def copy_is_over(c: Campaign, copy: Any, out: list[Any]) -> None:
        original = c.items.get(copy.original or "")
        if original is not None and isinstance(original.state, Following):
            c.finish(original, copy.state.outcome, None, out)
        else:
            real(c, copy, out)

    patch.setattr(failover, "copy_is_over", copy_is_over)


def what_could_be_measured_moves(patch: Patch) -> None:
    """Promise 4: the first failure sends a point away."""
    real = failing.back_off

    def back_off(c: Campaign, item: Any, error: str, *rest: Any) -> None:
        if item.lane.device.failover_to and item.lane.out_of_service is None:
            service.hole(c, item, error, FailureClass.TRANSPORT, rest[-1])
        else:
            real(c, item, error, *rest)

    patch.setattr(failing, "back_off", back_off)


def a_death_is_the_links_fault(patch: Patch) -> None:
    """Promise 2: a run that was killed for its memory, with all around it, is tried again."""
    real = attempts.on_died

    def on_died(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        failure = event.failure._replace(failure_class=FailureClass.TRANSPORT)
        real(c, item, event._replace(failure=failure), out)

    handler(patch, ev.AttemptDied, on_died)


def a_death_is_silent(patch: Patch) -> None:
    """Promise 3: what the platform ended begins again, and no line says so."""

    def on_died(c: Campaign, item: Any, event: Any, out: list[Any]) -> None:
        if isinstance(item.state, Running):
            item.n += 1
            item.doubtful = item.suspect = item.inherited = False
            c.claim_next(item, item.state.slot, out)
        else:
            attempts.on_died(c, item, event, out)

    handler(patch, ev.AttemptDied, on_died)


MUTANTS = [
    a_death_is_the_links_fault,
    a_death_is_silent,
    stragglers_hold_no_turn,
    a_kept_turn_is_kept_for_ever,
    the_dead_are_not_called,
    the_journal_is_for_what_is_queued,
    what_may_run_is_not_asked,
    stopped_points_are_forgotten,
    a_parser_that_broke_is_asked_again,
    takeovers_are_silent,
    a_broken_link_is_the_end,
    what_runs_on_is_killed,
    what_has_finished_is_repeated,
    the_wall_clock_counts,
    any_timer_ends_a_wait,
    could_not_look_means_absent,
    what_never_came_home_is_a_result,
    the_lost_were_never_there,
    any_device_stands_in,
    the_dead_stand_in,
    copies_move_on,
    drained_points_stay,
    nobody_waits_for_the_copy,
    the_copy_is_the_result,
    what_could_be_measured_moves,
    the_last_failure_is_not_counted,
    results_are_retried,
    memory_is_retried,
    retries_never_end,
    repeats_are_not_written_down,
    work_moves,
    groups_are_ignored,
    nobody_goes_to_the_back,
    back_off_keeps_the_turn,
    unproven_is_taken_for_dead,
    nobody_asks,
    lost_needs_no_proof,
    started_before_journaled,
    forgotten_before_recorded,
    holes_are_not_reported,
    a_full_disk_is_a_result,
    late_events_count,
    numbers_start_again,
    early_timers_count,
    a_slot_is_given_back_too_soon,
    probes_without_end,
    devices_start_well,
    the_old_night_counts,
    given_up_untested,
    given_up_too_soon,
    a_passed_probe_is_enough,
    a_trial_costs_an_attempt,
    failed_probes_are_silent,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_the_simulation_catches(
    mutant: Callable[[Patch], None], monkeypatch: Patch, record_property: Callable[[str, object], None]
) -> None:
    mutant(monkeypatch)
    for tried, seed in enumerate(SEEDS, 1):
        try:
            Simulation(seed).run()
        except Violation as broken:
            caught = str(broken.__cause__)
        except (KeyError, ValueError, AttributeError) as tripped:  # a mutant may trip over itself
            caught = f"no promise, it fell over {tripped!r}"
        else:
            continue
        record_property("mutant", f"caught by campaign {tried}, seed {seed}: {caught[:100]}")
        return
    pytest.fail(f"{len(SEEDS)} campaigns noticed nothing: {mutant.__doc__}")


def test_every_promise_of_the_core_has_mutants() -> None:
    docs = " ".join(mutant.__doc__ or "" for mutant in MUTANTS)
    counts = Counter(n for words in re.findall(r"Promises? ([\d and,]+):", docs) for n in re.findall(r"\d+", words))
    assert {int(n) for n, count in counts.items() if count >= 2} == set(range(1, 12)), counts
    assert {name for name, it in globals().items() if _is_mutant(it)} == {mutant.__name__ for mutant in MUTANTS}


def _is_mutant(it: object) -> bool:
    return callable(it) and list(getattr(it, "__annotations__", ())) == ["patch", "return"]
