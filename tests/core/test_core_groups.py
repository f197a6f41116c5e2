"""What a member of a resource group that is dead, dying or backing off costs the others, in virtual seconds.

mlsys, with a dead member and a live one, starts the live one's last point after 14.5 s of added wait: a back-off holds
the group's turn there.
"""

from __future__ import annotations

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.events import Work
from sidewinder.model import OUTLIVES_S, AttemptId, Device, Policy, RetryPolicy
from sidewinder.testing import World

EXACT = Policy(retry=RetryPolicy(jitter=0.0))
DEAD = Device("dead", "ssh", resource_group="board")
LIVE = Device("live", "ssh", resource_group="board")
POINTS = ("l0", "l1", "l2", "l3")


def a(work_id: str, n: int = 1) -> AttemptId:
    return AttemptId(work_id, n)


def lost(work_id: str, may_run_s: float | None = None) -> ev.TransportFailed:
    return ev.TransportFailed(a(work_id), "no route to host", may_run_s)


def until_claimed(world: World, work_id: str, limit_s: float = 1000.0) -> float:
    """Virtual seconds until this point takes its turn."""
    began_s = world.clock.monotonic_s
    while not any(isinstance(i, do.Journal) and i.attempt.work_id == work_id for i in world.pending):
        assert world.clock.monotonic_s - began_s < limit_s, f"{work_id} never has its turn, seed {world.seed}"
        world.advance(1.0)
    return world.clock.monotonic_s - began_s


def waits_of_the_live(world: World, *points: str) -> list[float]:
    """Of each point, one after the other: how long it waits for a turn when its own device is free."""
    waits_s = []
    for point in points:
        waits_s.append(until_claimed(world, point))
        world.runs(point)
        world.advance(10.0)
        world.ends(point)
    print(f"seed {world.seed}: added wait of {', '.join(points)}: {waits_s} s")
    return waits_s


# -- dead from the start ----------------------------------------------------------------------------------------------


def test_a_member_that_never_answers_costs_the_others_nothing() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.silent.add("dead")
    world.queue("d0", "d1", on="dead")  # first in the rotation
    world.queue(*POINTS, on="live")
    assert world.expect(do.Probe, "dead").call
    assert waits_of_the_live(world, *POINTS) == [0.0] * 4  # while the call takes as long as it takes
    for _ in range(3):
        world.happens(ev.ProbeAnswered("dead", False, "no route to host"))
        world.noted("unanswered", error="no route to host")
        world.advance(60.0)
        if world.campaign.lanes["dead"].breaker.trips == 0:
            world.expect(do.Probe, "dead")
    assert world.noted("device_down").fields["failures"] == 3
    assert world.campaign.items["d0"].repeats == 0  # nobody started it: it has all its attempts


def test_a_member_that_comes_late_is_called_once_and_then_takes_its_turns() -> None:
    with World([DEAD, LIVE], EXACT) as world:
        world.silent.add("dead")
        world.queue("d0", on="dead")
        world.expect(do.Probe, "dead")
        world.happens(ev.ProbeAnswered("dead", False, "no route to host"))
        world.advance(5.0)  # the back-off of one failure
        world.expect(do.Probe, "dead")
        world.happens(ev.ProbeAnswered("dead", True))
        world.runs("d0")
        world.ends("d0")


def test_a_device_alone_is_not_called_first() -> None:
    with World([LIVE], EXACT) as world:
        world.silent.add("live")
        world.queue("l0", on="live")
        world.runs("l0")
        world.ends("l0")


def test_a_call_that_finds_the_device_unfit_quarantines_it() -> None:
    with World([DEAD, LIVE], EXACT) as world:
        world.silent.add("dead")
        world.queue("d0", on="dead")
        world.expect(do.Probe, "dead")
        world.happens(ev.ProbeAnswered("dead", False, "host key changed", unfit=True))
        world.becomes_hole("d0", because="host key changed")


# -- dies in mid-run --------------------------------------------------------------------------------------------------


def dying(may_run_s: float | None) -> World:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.runs("d0")
    world.queue(*POINTS, on="live")
    world.nothing()
    world.happens(lost("d0", may_run_s))
    world.silent.add("dead")
    return world


def test_what_may_still_run_keeps_its_turn_until_its_lease_is_over() -> None:
    """Else the others were measured beside it, on the same silicon."""
    world = dying(None)
    assert world.noted("straggler", attempt=1, group="board").fields["at_most_s"] == OUTLIVES_S
    said = " ".join(world.campaign.explain("l0", world.clock.monotonic_s))
    assert "one is kept for d0#1, which may still run on dead, for 65 s at most" in said
    assert waits_of_the_live(world, *POINTS) == [OUTLIVES_S, 0.0, 0.0, 0.0]


def test_the_engine_has_waited_for_the_lease_and_the_grace_is_left() -> None:
    assert waits_of_the_live(dying(5.0), *POINTS) == [5.0, 0.0, 0.0, 0.0]


def test_a_reboot_is_a_proof_of_death_and_nobody_waits() -> None:
    assert waits_of_the_live(dying(0.0), *POINTS) == [0.0, 0.0, 0.0, 0.0]


def test_an_answer_gives_the_turn_back_before_the_lease_is_over() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.runs("d0")
    world.queue("l0", on="live")
    world.happens(lost("d0"))
    assert until_claimed(world, "d0") == 5.0  # its back-off; the kept turn is the one it asks with
    world.expect(do.Journal, "d0")
    world.nothing()
    world.happens(ev.Journaled(a("d0")))
    world.expect(do.AskStatus, "d0")
    world.happens(ev.StatusAnswered(a("d0"), "lost"))
    world.expect(do.Kill, "d0")
    world.happens(ev.KillProven(a("d0")))
    world.expect(do.Journal, "d0", n=2)  # it still is its turn
    world.happens(ev.Journaled(a("d0", 2)))
    world.expect(do.StartAttempt, "d0")
    world.happens(ev.AttemptStarted(a("d0", 2)))
    world.expect(do.Attach, "d0")
    world.ends("d0")
    assert waits_of_the_live(world, "l0") == [0.0]


def test_the_link_comes_back_and_the_run_goes_on_in_its_turn() -> None:
    with World([DEAD, LIVE], EXACT) as world:
        world.queue("d0", on="dead")
        world.runs("d0")
        world.queue("l0", on="live")
        world.happens(lost("d0"))
        world.advance(5.0)
        world.expect(do.Journal, "d0", n=1)
        world.happens(ev.Journaled(a("d0")))
        world.expect(do.AskStatus, "d0")
        world.happens(ev.StatusAnswered(a("d0"), "running"))
        world.expect(do.Attach, "d0")
        world.advance(100.0)
        world.nothing()  # the live one waits for a run, not for a lease
        world.ends("d0")
        world.runs("l0")
        world.ends("l0")


def test_a_question_that_fails_makes_the_lease_no_longer() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.runs("d0")
    world.queue("l0", on="live")
    world.happens(lost("d0"))
    assert until_claimed(world, "d0") == 5.0
    world.happens(ev.Journaled(a("d0")))
    world.expect(do.AskStatus, "d0")
    world.silent.add("dead")
    world.happens(lost("d0"))
    assert waits_of_the_live(world, "l0") == [OUTLIVES_S - 5.0]


def test_a_start_whose_answer_was_lost_may_run_too() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.queue("l0", on="live")
    world.expect(do.Journal, "d0")
    world.happens(ev.Journaled(a("d0")))
    world.expect(do.StartAttempt, "d0")
    world.silent.add("dead")
    world.happens(lost("d0"))
    assert waits_of_the_live(world, "l0") == [OUTLIVES_S]


def test_a_death_that_cannot_be_proven_keeps_its_turn_for_a_lease_too() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.runs("d0")
    world.queue("l0", on="live")
    world.happens(lost("d0"))
    world.advance(5.0)
    world.expect(do.Journal, "d0")
    world.happens(ev.Journaled(a("d0")))
    world.expect(do.AskStatus, "d0")
    world.happens(ev.StatusAnswered(a("d0"), "lost"))
    world.expect(do.Kill, "d0")
    world.happens(ev.KillUnproven(a("d0"), "a process would not die"))
    world.becomes_hole("d0", because="could not be proven dead")
    assert waits_of_the_live(world, "l0") == [OUTLIVES_S]


# -- backs off --------------------------------------------------------------------------------------------------------


def test_a_back_off_holds_no_turn() -> None:
    world = World([DEAD, LIVE], EXACT)
    world.queue("d0", on="dead")
    world.queue(*POINTS, on="live")
    world.expect(do.Journal, "d0")
    world.happens(ev.Journaled(a("d0")))
    world.expect(do.StartAttempt, "d0")
    world.silent.add("dead")
    world.happens(lost("d0", 0.0))  # it never left: the link was gone by then
    world.noted("retry", delay_s=5.0)
    assert waits_of_the_live(world, *POINTS) == [0.0] * 4


# -- an earlier controller --------------------------------------------------------------------------------------------


def test_what_an_earlier_controller_left_running_keeps_its_turn_although_nobody_asks_for_it_now() -> None:
    world = World([], EXACT)
    world.happens(ev.DeviceAdded(DEAD, in_flight=(a("d0"),)), ev.DeviceAdded(LIVE))
    world.queue("l0", on="live")
    world.noted("straggler", attempt=1)
    assert waits_of_the_live(world, "l0") == [OUTLIVES_S]


def test_after_a_restart_the_device_is_asked_before_another_member_starts() -> None:
    with World([], EXACT) as world:
        world.happens(ev.DeviceAdded(DEAD, in_flight=(a("d0"),)), ev.DeviceAdded(LIVE))
        world.queue("l0", on="live")
        world.happens(ev.PointsQueued((Work("d0", "dead", last_attempt=1, in_flight=True),)))
        world.expect(do.Journal, "d0", n=1)
        world.happens(ev.Journaled(a("d0")))
        world.expect(do.AskStatus, "d0")
        world.nothing()
        world.happens(ev.StatusAnswered(a("d0"), "running"))
        world.expect(do.Attach, "d0")
        world.nothing()
        world.ends("d0")
        world.runs("l0")
        world.ends("l0")


def test_more_may_run_than_is_allowed_now_and_nothing_new_joins_them() -> None:
    """Two attempts are in flight by the journal, and the group's limit is one: both are asked about, in turn."""
    with World([], EXACT) as world:
        world.happens(ev.DeviceAdded(DEAD, in_flight=(a("d0"),)), ev.DeviceAdded(LIVE, in_flight=(a("l0"),)))
        works = (Work("d0", "dead", last_attempt=1, in_flight=True), Work("l0", "live", last_attempt=1, in_flight=True))
        world.happens(ev.PointsQueued(works))
        world.expect(do.Journal, "d0", n=1)
        world.nothing()
        world.happens(ev.Journaled(a("d0")))
        world.expect(do.AskStatus, "d0")
        world.happens(ev.StatusAnswered(a("d0"), "absent"))  # it could start, were it not for l0, which may run
        world.expect(do.Journal, "l0", n=1)
        world.nothing()
        world.happens(ev.Journaled(a("l0")))
        world.expect(do.AskStatus, "l0")
        world.happens(ev.StatusAnswered(a("l0"), "running"))
        world.expect(do.Attach, "l0")
        world.ends("l0")
        world.runs("d0")
        world.ends("d0")


def test_two_slots_and_one_turn_are_no_two_turns() -> None:
    wide = Device("wide", "ssh", max_concurrency=2, resource_group="board", group_max_concurrency=1)
    world = World([wide], EXACT)
    world.queue("w0", "w1", on="wide")
    world.runs("w0")
    world.happens(lost("w0"))
    assert until_claimed(world, "w0") == 5.0  # not w1, in the slot beside it
