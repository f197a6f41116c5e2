"""What an invocation makes of devices that an earlier one left down or quarantined (promise 6)."""

from __future__ import annotations

from dataclasses import replace

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.events import Earlier
from sidewinder.model import AttemptId, Device, Evidence, Failure, FailureClass, Policy, RetryPolicy
from sidewinder.testing import World

EXACT = Policy(retry=RetryPolicy(jitter=0.0))
FRAGILE = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=180.0, give_up_after_s=360.0)
NIGHT_S = 8 * 3600.0


def lost(work_id: str, n: int = 1) -> ev.TransportFailed:
    return ev.TransportFailed(AttemptId(work_id, n), "connection reset")


def left_behind(earlier: Earlier, device: Device = FRAGILE) -> World:
    world = World([], EXACT)
    world.happens(ev.DeviceAdded(device, earlier=earlier))
    return world


def test_a_device_that_was_down_is_probed_once_at_once_and_its_points_wait_for_that() -> None:
    with left_behind(Earlier("no route to host", down_s=NIGHT_S)) as world:
        world.expect(do.Probe, "pi")
        world.queue("p", "q", on="pi")
        world.advance(100.0)
        world.nothing()
        world.happens(ev.ProbeAnswered("pi", True))
        world.runs("p")
        world.nothing()  # the trial point alone
        world.ends("p")
        assert world.noted("device_up").fields["down_s"] == NIGHT_S + 100.0
        world.runs("q")


def test_a_night_of_downtime_gives_nothing_up_before_this_invocation_has_waited_itself() -> None:
    with left_behind(Earlier("no route to host", down_s=NIGHT_S)) as world:
        world.queue("p", on="pi")
        for _ in range(2):
            world.expect(do.Probe, "pi")
            world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
            assert world.noted("probe_failed").fields["probe_in_s"] == 180.0
            world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        assert world.noted("given_up").fields["down_s"] == NIGHT_S + 360.0
        world.becomes_hole("p", because="no run completed for 360 s")


def test_going_down_gives_nothing_up_before_a_probe_has_failed() -> None:
    with World([replace(FRAGILE, give_up_after_s=0.0)], EXACT) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        world.noted("device_down")
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        world.becomes_hole("p", because="taken out of service")


def test_a_failed_trial_counts_as_a_test_and_costs_its_point_nothing() -> None:
    with left_behind(Earlier("reset"), replace(FRAGILE, give_up_after_s=100.0)) as world:
        world.queue("p", on="pi")
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.runs("p")
        world.advance(100.0)
        world.happens(lost("p"))
        world.becomes_hole("p", because="taken out of service")


def test_a_passed_probe_lifts_a_quarantine_and_a_failed_one_renews_it() -> None:
    with left_behind(Earlier("no Python on pi", quarantined=True)) as world:
        world.queue("p", on="pi")
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.noted("released", reason="no Python on pi")
        world.runs("p")
        world.ends("p")
    with left_behind(Earlier("no Python on pi", quarantined=True)) as world:
        world.queue("p", on="pi")
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        world.noted("quarantined", reason="no Python on pi")
        world.becomes_hole("p", because="no Python on pi, and its probe failed (no route to host)")
        world.queue("q", on="pi")
        world.becomes_hole("q", because="no Python on pi")


def test_a_probe_that_finds_the_device_unfit_quarantines_it() -> None:
    with left_behind(Earlier("no route to host")) as world:
        world.queue("p", on="pi")
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "its host key changed", unfit=True))
        world.becomes_hole("p", because="pi is quarantined: its host key changed")


def test_a_run_in_another_slot_ends_no_quarantine() -> None:
    with World([replace(FRAGILE, max_concurrency=2)], EXACT) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.runs("q")
        world.happens(lost("p"))
        world.happens(ev.DeviceQuarantined("pi", "its host key changed"))
        world.becomes_hole("p", because="its host key changed")
        world.ends("q")
        assert not [note for note in world.notes if note.kind == "device_up"]


def test_only_a_run_that_came_back_ends_the_downtime() -> None:
    """A refusal of class measurement never reached the workload: it says nothing about the device."""
    with left_behind(Earlier("reset")) as world:
        world.queue("p", "q", on="pi")
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptRefused(AttemptId("p", 1), Failure(FailureClass.MEASUREMENT, "bad")))
        world.publishes("p")
        world.expect(do.ReportDone, "p")
        assert world.campaign.lanes["pi"].breaker.down_since_s is not None
        world.runs("q")  # the next trial


def test_each_lab_keeps_its_own_policy() -> None:
    """Two labs in one engine: what one says of retries does not bind the other's devices."""
    with World([], EXACT) as world:
        for device, tries in (("a", 1), ("b", 2)):
            policy = Policy(retry=RetryPolicy(max_attempts=tries, jitter=0.0), busy_wait_s=10.0 * tries)
            world.happens(ev.DeviceAdded(Device(device, "ssh"), policy=policy))
            world.queue(f"{device}0", on=device)
            world.expect(do.Journal, f"{device}0")
            world.happens(ev.Journaled(AttemptId(f"{device}0", 1)))
            world.expect(do.StartAttempt, f"{device}0")
            world.happens(ev.AttemptRefused(AttemptId(f"{device}0", 1), Failure(FailureClass.TRANSPORT, "no answer")))
        world.becomes_hole("a0", because="1 attempt(s) on a")
        world.advance(5.0)
        world.runs("b0")


WRONG = Evidence("done", 0, wrong_spec="its CPU quota is 0.25 cores, asked are 0.5")


def test_a_device_that_was_another_one_in_an_earlier_invocation_may_be_mended_by_now() -> None:
    """Its result still lies there: taken for news it would quarantine the device again and again."""
    with World([Device("pod", "kubernetes")], EXACT) as world:
        world.queue("p", on="pod", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p", n=1)
        world.happens(ev.StatusAnswered(AttemptId("p", 1), "finished"))
        world.expect(do.Attach, "p", n=1)
        world.happens(ev.ResultArrived(AttemptId("p", 1), WRONG))
        assert world.noted("retry", over=True).fields["failure_class"] == "device"
        world.runs("p", n=2)
        world.ends("p")


def test_a_run_that_was_measured_on_another_device_than_asked_for_takes_the_device_out() -> None:
    with World([Device("pod", "kubernetes")], EXACT) as world:
        world.queue("p", "q", on="pod")
        world.runs("p")
        world.happens(ev.ResultArrived(AttemptId("p", 1), WRONG))
        world.noted("quarantined")
        world.becomes_hole("p", because="asked are 0.5")
        world.becomes_hole("q", because="asked are 0.5")
