"""Stories: what a campaign does, told event by event. A story must expect every instruction."""

from __future__ import annotations

import itertools

import pytest

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.errors import InternalError
from sidewinder.model import AttemptId, Device, Evidence, Failure, FailureClass, Policy, RetryPolicy
from sidewinder.testing import World

PI = Device("pi", "ssh", give_up_after_s=360.0)
TWO = Device("two", "ssh", max_concurrency=2)
EXACT = Policy(retry=RetryPolicy(jitter=0.0))


def a(work_id: str, n: int = 1) -> AttemptId:
    return AttemptId(work_id, n)


def lost(work_id: str, n: int = 1) -> ev.TransportFailed:
    return ev.TransportFailed(a(work_id, n), "connection reset")


def board(world: World, device: str) -> dict[str, object]:
    counts = world.campaign.board()[device]
    return {k: v for k, v in counts.items() if v}


# -- a life without trouble -------------------------------------------------------------------------------------------


def test_a_point_from_queue_to_record() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        assert world.expect(do.Journal, "p") == do.Journal(a("p"), "pi")
        world.nothing()  # nothing leaves before the claim is on disk
        world.happens(ev.Journaled(a("p")))
        assert world.expect(do.StartAttempt, "p").slot == 0
        world.happens(ev.AttemptStarted(a("p")))
        world.expect(do.Attach, "p")
        world.happens(ev.ResultArrived(a("p"), Evidence("done", 0)))
        world.expect(do.Parse, "p")
        world.happens(ev.Parsed(a("p"), None))
        assert world.expect(do.Publish, "p") == do.Publish("p", a("p"), None)
        world.nothing()  # the device may not forget before the record is on disk
        world.happens(ev.Published("p"))
        world.expect(do.Ack, "p")
        assert world.expect(do.ReportDone, "p") == do.ReportDone("p", "ok", None)
        world.happens(ev.Acked(a("p")))
        assert world.campaign.open_work() == []
        assert world.campaign.explain("p", 0.0) == ["p is over: ok on pi"]


def test_the_slot_is_held_until_the_record_is_on_disk() -> None:
    with World([PI]) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), Evidence("done", 0)))
        world.expect(do.Parse, "p")
        world.happens(ev.Parsed(a("p"), None))
        world.expect(do.Publish, "p")
        world.nothing()  # parsing and writing p must not overlap q on the same device
        world.happens(ev.Published("p"))
        world.expect(do.Ack, "p")
        world.expect(do.ReportDone, "p")
        world.expect(do.Journal, "q")


def test_a_device_runs_as_many_at_once_as_it_has_slots() -> None:
    with World([TWO]) as world:
        world.queue("p", "q", "r", on="two")
        world.expect(do.Journal, "p")
        world.expect(do.Journal, "q")
        world.nothing()
        world.happens(ev.Journaled(a("p")), ev.Journaled(a("q")))
        assert {world.expect(do.StartAttempt, w).slot for w in "pq"} == {0, 1}
        assert "all 2 slot(s) of two are in use" in world.campaign.explain("r", 0.0)


def test_priority_then_position_decide_and_attempts_in_flight_come_first() -> None:
    with World([PI]) as world:
        world.happens(
            ev.PointsQueued(
                (
                    ev.Work("late", "pi", position=9),
                    ev.Work("early", "pi", position=1),
                    ev.Work("urgent", "pi", position=99, priority=5),
                    ev.Work("alive", "pi", position=50, last_attempt=2, in_flight=True),
                )
            )
        )
        world.expect(do.Journal, "alive", n=2)
        world.happens(ev.Journaled(a("alive", 2)))
        world.expect(do.AskStatus, "alive", n=2)
        world.happens(ev.StatusAnswered(a("alive", 2), "finished"))
        world.expect(do.Attach, "alive")
        for done, following in itertools.pairwise(("alive", "urgent", "early", "late")):
            world.ends(done)
            if following == "late":
                world.expect(do.Journal, "late")
            else:
                world.runs(following)


# -- results are never retried ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("evidence", "failure_class", "words"),
    [
        (Evidence("timeout"), FailureClass.MEASUREMENT, "time limit"),
        (Evidence("done", -9, oom_kills=1), FailureClass.MEMORY, "lack of memory"),
        (Evidence("spawn_failed", error="not_found"), FailureClass.MEASUREMENT, "not_found"),
        (
            Evidence("refused", error="file_missing", detail="no model at /m/q4"),
            FailureClass.CONFIG,
            "no model at /m/q4",
        ),
    ],
)
def test_a_run_that_said_no_is_a_failed_result(evidence: Evidence, failure_class: FailureClass, words: str) -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), evidence))
        publish = world.publishes("p")
        assert publish.attempt == a("p")
        assert publish.failure is not None
        assert publish.failure.failure_class is failure_class
        assert words in publish.failure.message
        world.expect(do.Ack, "p")
        world.expect(do.ReportDone, "p", outcome="failed")


def test_the_workload_may_say_why_an_exit_code_came_but_cannot_make_it_a_result() -> None:
    with World([PI]) as world:
        world.queue("p", "q", "r", on="pi")
        said = Failure(FailureClass.MEASUREMENT, "model architecture 'x' is not supported")
        broke = Failure(FailureClass.PARSE, "no JSON in the output")
        for work_id, parsed, expected in (("p", None, "exit code 1"), ("q", said, "'x'"), ("r", broke, "exit code 1")):
            world.runs(work_id)
            world.happens(ev.ResultArrived(a(work_id), Evidence("done", 1)))
            world.expect(do.Parse, work_id)
            world.happens(ev.Parsed(a(work_id), parsed))
            publish = world.publishes(work_id)
            assert publish.failure is not None
            assert expected in publish.failure.message
            assert publish.failure.failure_class is FailureClass.MEASUREMENT
            world.expect(do.Ack, work_id)
            world.expect(do.ReportDone, work_id, outcome="failed")


def test_a_parser_that_breaks_after_a_good_run_is_a_failed_result_of_class_parse() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.ends("p", failure=Failure(FailureClass.PARSE, "cut JSON"))


# -- transport --------------------------------------------------------------------------------------------------------


def test_a_link_that_drops_during_a_run_loses_nothing_if_the_device_survived() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        world.noted("retry", attempt=1, delay_s=5.0, failure_class="transport")
        assert "backs off" in world.campaign.explain("p", 2.0)[0]
        world.advance(5.0)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p", n=1)
        world.happens(ev.StatusAnswered(a("p"), "running"))
        world.noted("reattached", attempt=1, state="running")
        world.expect(do.Attach, "p", n=1)
        world.ends("p")


def test_what_never_arrived_is_started_again_with_the_same_number_and_costs_an_attempt() -> None:
    patient = Device("pi", "ssh", max_transport_failures=9)
    with World([patient], EXACT) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        for wait_s in (5.0, 5.0, 5.0):  # asking in between was answered: the failures are not in a row
            world.expect(do.StartAttempt, "p", n=1)
            world.happens(lost("p"))
            world.noted("retry", delay_s=wait_s)
            world.advance(30.0)
            world.expect(do.Journal, "p", n=1)
            world.happens(ev.Journaled(a("p")))
            world.expect(do.AskStatus, "p")
            world.happens(ev.StatusAnswered(a("p"), "absent"))
        world.becomes_hole("p", because="3 attempt(s) on pi failed on the way")


def test_back_off_holds_neither_slot_nor_turn() -> None:
    left = Device("left", "ssh", resource_group="board")
    right = Device("right", "ssh", resource_group="board")
    with World([left, right], EXACT) as world:
        world.queue("p", "q", on="left")
        world.runs("p")
        world.queue("r", on="right")
        world.nothing()
        world.happens(ev.TransportFailed(a("p"), "connection reset", may_run_s=0.0))  # nothing of it runs
        world.runs("r")
        world.ends("r")
        world.runs("q")  # also the device's own slot is free while p backs off


def test_the_retried_point_goes_to_the_tail_but_one_that_may_still_run_comes_first() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", "r", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), Evidence("done", 143)))  # known to be over: nothing of it runs
        world.noted("retry", failure_class="preempted")
        world.runs("q")
        world.advance(10.0)
        world.ends("q")
        world.runs("r")
        world.ends("r")
        world.expect(do.Journal, "p", n=2)


def test_what_the_device_ended_because_we_were_away_is_repeated_at_the_tail() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", "r", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), Evidence("lease_expired")))
        world.noted("retry", failure_class="transport", attempt=1, over=True)
        world.runs("q")
        world.advance(10.0)
        world.ends("q")
        world.runs("r")
        world.ends("r")
        world.expect(do.Journal, "p", n=2)


def test_two_failures_in_a_row_let_the_device_rest_so_that_a_blip_does_not_open_the_breaker() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", "r", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        world.runs("q")  # one failure may be the point's own bad luck
        world.happens(lost("q"))
        world.nothing()  # two are the device's
        assert "rests" in " ".join(world.campaign.explain("r", 0.0))
        world.advance(10.0)
        world.expect(do.Journal, "p")  # may still run: first
        assert board(world, "pi")["service"] == "up"


def test_a_busy_answer_naming_a_point_that_backs_off_ends_its_wait_at_once() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        world.expect(do.Journal, "q")
        world.happens(ev.Journaled(a("q")))
        world.expect(do.StartAttempt, "q")
        world.happens(ev.AttemptBusy(a("q"), "p#1", mine=True))
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "running"))
        world.expect(do.Attach, "p")
        world.advance(60.0)  # its old timer means nothing any more
        world.ends("p")
        world.runs("q")


def test_preempted_points_are_queued_again_within_their_own_bound() -> None:
    with World([PI], Policy(retry=RetryPolicy(max_attempts=1, jitter=0.0))) as world:
        world.queue("p", on="pi")
        for n in range(1, 7):
            world.runs("p", n=n)
            world.happens(ev.ResultArrived(a("p", n), Evidence("done", -15)))
            world.advance(120.0)
        world.becomes_hole("p", because="preempted 6 times")
        assert world.campaign.board()["pi"]["failures"] == 0


# -- a controller that comes back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "finished"])
def test_after_a_crash_what_runs_or_has_ended_is_adopted(state: str) -> None:
    with World([PI]) as world:
        world.queue("p", on="pi", last_attempt=3, in_flight=True)
        world.expect(do.Journal, "p", n=3)
        world.happens(ev.Journaled(a("p", 3)))
        world.expect(do.AskStatus, "p", n=3)
        world.happens(ev.StatusAnswered(a("p", 3), state, 3))
        world.noted("adopted", state=state)
        world.expect(do.Attach, "p", n=3)
        world.ends("p")


def test_after_a_crash_what_is_absent_is_started_under_its_number() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi", last_attempt=3, in_flight=True)
        world.expect(do.Journal, "p", n=3)
        world.happens(ev.Journaled(a("p", 3)))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p", 3), "absent", 2))
        world.expect(do.StartAttempt, "p", n=3)


def test_an_absent_attempt_below_the_devices_highest_is_skipped() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi", last_attempt=3, in_flight=True)
        world.expect(do.Journal, "p", n=3)
        world.happens(ev.Journaled(a("p", 3)))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p", 3), "absent", 7))
        world.runs("p", n=8)


def test_a_lost_attempt_is_followed_only_by_a_proof_of_its_death() -> None:
    with World([PI], Policy(retry=RetryPolicy(max_attempts=1))) as world:
        world.queue("p", on="pi", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "lost"))
        world.expect(do.Kill, "p", n=1)
        world.nothing()
        world.happens(ev.KillProven(a("p")))
        world.runs("p", n=2)  # an earlier invocation's bad luck costs nothing of today's one attempt
        world.ends("p")


def test_an_unproven_death_quarantines_the_device() -> None:
    with World([PI]) as world:
        world.queue("p", "q", on="pi", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "lost"))
        world.expect(do.Kill, "p")
        world.happens(ev.KillUnproven(a("p"), "pid 812 would not die"))
        world.noted("quarantined")
        world.becomes_hole("q", because="pid 812 would not die")
        world.becomes_hole("p", because="could not be proven dead on pi")
        world.queue("later", on="pi")
        world.becomes_hole("later", because="quarantined")
        assert board(world, "pi")["service"] == "quarantined"


def test_a_run_that_the_device_stopped_for_an_earlier_controller_costs_todays_point_nothing() -> None:
    with World([PI], Policy(retry=RetryPolicy(max_attempts=1))) as world:
        world.queue("p", on="pi", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "finished"))
        world.expect(do.Attach, "p")
        world.happens(ev.ResultArrived(a("p"), Evidence("lease_expired")))
        world.runs("p", n=2)
        world.ends("p")


def test_after_a_restart_the_device_says_which_slot_an_adopted_run_is_in() -> None:
    with World([TWO]) as world:
        world.queue("p", on="two", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "running"))
        world.expect(do.Attach, "p")  # in the core's slot 0; on the device it is in slot 1
        world.queue("q", on="two")
        world.expect(do.Journal, "q")
        world.happens(ev.Journaled(a("q")))
        assert world.expect(do.StartAttempt, "q").slot == 1
        world.happens(ev.AttemptBusy(a("q"), "p#1", mine=True))
        assert world.expect(do.StartAttempt, "q").slot == 0
        world.happens(ev.AttemptStarted(a("q")))
        world.expect(do.Attach, "q")
        world.ends("p")
        world.ends("q")


# -- busy, stale, refused ---------------------------------------------------------------------------------------------


def test_a_run_of_this_controller_that_nobody_wants_is_ended_first() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptBusy(a("p"), "old#4", mine=True))
        assert world.expect(do.Kill).attempt == a("old", 4)
        world.happens(ev.KillProven(a("old", 4)))
        world.noted("evicted", holder="old#4")
        world.expect(do.StartAttempt, "p", n=1)
        world.happens(ev.AttemptStarted(a("p")))
        world.expect(do.Attach, "p")


@pytest.mark.parametrize("end", ["proven", "lost"])
def test_work_that_is_queued_while_its_left_over_run_is_being_ended_takes_the_kill_over(end: str) -> None:
    """The simulation found it: the answer reached the wrong one of the two, which ended the engine."""
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptBusy(a("p"), "old#4", mine=True))
        world.expect(do.Kill)
        world.queue("old", on="pi", last_attempt=4, in_flight=True)
        world.nothing()  # one kill, and one who waits for its answer
        if end == "lost":
            world.happens(ev.TransportFailed(a("old", 4), "connection reset"))
            world.noted("transport_failure")
            world.noted("retry", over=False)
        else:
            world.happens(ev.KillProven(a("old", 4)))
            world.noted("retry", over=True)
            assert world.expect(do.Journal, "old").attempt == a("old", 5)
            world.happens(ev.Journaled(a("old", 5)))
            world.expect(do.StartAttempt, "old", n=5)
            world.happens(ev.AttemptStarted(a("old", 5)))
            world.expect(do.Attach, "old")
            world.ends("old")
        assert world.expect(do.Journal, "p").attempt == a("p")  # its turn comes again


def test_who_gives_a_kill_away_on_a_device_that_is_out_is_a_hole_at_once() -> None:
    """The simulation found it: it waited for a device that takes nothing any more."""
    two = Device("two", "ssh", max_concurrency=2)
    with World([two]) as world:
        world.queue("p", on="two")
        world.queue("q", on="two")
        for one in ("p", "q"):
            world.expect(do.Journal, one)
            world.happens(ev.Journaled(a(one)))
            world.expect(do.StartAttempt, one)
        world.happens(ev.AttemptBusy(a("p"), "old#4", mine=True))
        world.expect(do.Kill)
        world.happens(ev.AttemptRefused(a("q"), Failure(FailureClass.DEVICE, "no space left on the device")))
        world.noted("quarantined")
        world.expect(do.Publish, "q")
        world.queue("old", on="two", last_attempt=4, in_flight=True)
        hole = world.expect(do.Publish, "p").failure
        assert hole.failure_class is FailureClass.NOT_ATTEMPTED
        assert "no space left" in hole.message
        world.happens(ev.KillUnproven(a("old", 4), "it does not end"))
        world.expect(do.Publish, "old")


def test_another_controllers_run_is_waited_for_without_a_turn_and_without_the_breaker() -> None:
    left = Device("left", "ssh", resource_group="board")
    right = Device("right", "ssh", resource_group="board")
    with World([left, right]) as world:
        world.queue("p", on="left")
        world.queue("r", on="right")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptBusy(a("p"), "q7 of ada@laptop"))
        world.noted("busy", holder="q7 of ada@laptop")
        assert "ada@laptop" in world.campaign.explain("p", 3.0)[0]
        world.runs("r")  # the turn is free
        world.advance(60.0)
        world.nothing()  # asks again only in its turn
        world.ends("r")
        world.expect(do.StartAttempt, "p", n=1)
        world.happens(ev.AttemptStarted(a("p")))
        world.expect(do.Attach, "p")
        assert world.campaign.board()["left"]["failures"] == 0


def test_a_device_that_stays_busy_makes_a_hole_that_says_whose() -> None:
    with World([PI], Policy(busy_wait_s=12.0)) as world:
        world.queue("p", "q", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        for _ in range(3):
            world.expect(do.StartAttempt, "p")
            world.happens(ev.AttemptBusy(a("p"), "q7 of ada@laptop"))
            world.advance(5.0)
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptBusy(a("p"), "q7 of ada@laptop"))
        world.becomes_hole("p", because="q7 of ada@laptop")
        world.expect(do.Journal, "q")  # each point asks for itself, at once
        world.happens(ev.Journaled(a("q")))
        world.expect(do.StartAttempt, "q")
        world.happens(ev.AttemptBusy(a("q"), "q8 of ada@laptop"))
        world.becomes_hole("q", because="q8 of ada@laptop")


def test_a_stale_number_is_followed_by_one_more_than_the_devices_highest() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p", n=1)
        world.happens(ev.AttemptStale(a("p"), 4))
        world.runs("p", n=5)
        world.ends("p")


def test_a_device_that_calls_every_number_stale_is_given_up() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", on="pi")
        for n in (1, 10, 100, 1000):
            world.expect(do.Journal, "p", n=n)
            world.happens(ev.Journaled(a("p", n)))
            world.expect(do.StartAttempt, "p", n=n)
            world.happens(ev.AttemptStale(a("p", n), n * 10 - 1))
            world.advance(100.0)
        world.becomes_hole("p", because="stale")


@pytest.mark.parametrize("failure_class", [FailureClass.CONFIG, FailureClass.MEASUREMENT])
def test_a_task_that_cannot_be_made_is_a_failed_result_and_the_device_is_not_told(failure_class: FailureClass) -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptRefused(a("p"), Failure(failure_class, "threads must be a number")))
        assert world.publishes("p").failure == Failure(failure_class, "threads must be a number")
        world.expect(do.ReportDone, "p", outcome="failed")


def test_a_config_failure_does_not_touch_the_breaker() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        world.expect(do.Journal, "q")
        world.happens(ev.Journaled(a("q")))
        world.expect(do.StartAttempt, "q")
        world.happens(ev.AttemptRefused(a("q"), Failure(FailureClass.CONFIG, "bad")))
        world.publishes("q")
        world.expect(do.ReportDone, "q")
        assert world.campaign.lanes["pi"].breaker.in_row == 1


def test_an_unfit_device_is_quarantined_and_its_queue_becomes_holes_while_the_others_go_on() -> None:
    with World([PI, TWO]) as world:
        world.queue("p", "q", on="pi")
        world.queue("r", on="two")
        world.runs("r")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptRefused(a("p"), Failure(FailureClass.DEVICE, "no Python on pi")))
        world.becomes_hole("q", because="no Python on pi")
        world.becomes_hole("p", because="no Python on pi")
        world.ends("r")


def test_the_engine_may_quarantine_a_device_itself_and_what_runs_there_goes_on() -> None:
    with World([TWO]) as world:
        world.queue("p", "q", "r", on="two")
        world.runs("p")
        world.runs("q")
        world.happens(ev.DeviceQuarantined("two", "its host key changed"))
        world.becomes_hole("r", because="its host key changed")
        world.ends("p")
        world.happens(lost("q"))
        world.becomes_hole("q", because="its host key changed")


# -- groups -----------------------------------------------------------------------------------------------------------


def test_four_members_with_four_jobs_each_every_window_of_four_visits_all() -> None:
    arms = ["w", "x", "y", "z"]
    order = []
    with World([Device(arm, "local", resource_group="board") for arm in arms]) as world:
        for arm in arms:
            world.queue(*(f"{arm}{i}" for i in range(4)), on=arm)
        for _ in range(16):
            journal = world.expect(do.Journal)
            order.append(journal.device)
            work_id = journal.attempt.work_id
            world.nothing()  # one at a time
            world.happens(ev.Journaled(journal.attempt))
            world.expect(do.StartAttempt, work_id)
            world.happens(ev.AttemptStarted(journal.attempt))
            world.expect(do.Attach, work_id)
            world.ends(work_id)
    for start in range(0, 16, 4):
        assert set(order[start : start + 4]) == set(arms)


def test_the_tightest_declared_limit_wins_and_who_declares_none_is_left_out() -> None:
    devices = [
        Device("a", "local", resource_group="host", group_max_concurrency=3),
        Device("b", "local", resource_group="host", group_max_concurrency=2),
        Device("c", "local", resource_group="host"),
    ]
    with World(devices) as world:
        for device in "abc":
            world.queue(f"{device}0", on=device)
        world.expect(do.Journal, "a0")
        world.expect(do.Journal, "b0")
        world.nothing()
        assert "2 turn(s) of group host" in " ".join(world.campaign.explain("c0", 0.0))


def test_a_member_that_joins_late_joins_at_the_back() -> None:
    with World([Device("a", "local", resource_group="g"), Device("b", "local", resource_group="g")]) as world:
        world.queue("a0", "a1", "a2", on="a")
        world.queue("b0", "b1", on="b")
        world.runs("a0")
        world.happens(ev.DeviceAdded(Device("c", "local", resource_group="g")))
        world.queue("c0", on="c")
        for done, following in itertools.pairwise(("a0", "b0", "a1", "c0", "b1", "a2")):
            world.ends(done)
            world.runs(following)
        world.ends("a2")


def test_a_member_that_is_down_or_idle_holds_nobody_up() -> None:
    dead = Device("dead", "ssh", resource_group="g", max_transport_failures=1)
    live = Device("live", "ssh", resource_group="g")
    idle = Device("idle", "ssh", resource_group="g")
    with World([dead, live, idle], EXACT) as world:
        world.queue("d0", "d1", on="dead")
        world.queue("l0", "l1", on="live")
        world.runs("d0")
        world.happens(ev.TransportFailed(a("d0"), "connection reset", may_run_s=0.0))
        world.noted("device_down")
        world.runs("l0")
        world.ends("l0")
        world.runs("l1")
        assert world.clock.monotonic_s == 0.0
        world.ends("l1")


def test_ordinary_jobs_take_turns_with_points_and_need_neither_journal_nor_record() -> None:
    local = Device("local", "local", resource_group="here", group_max_concurrency=1)
    controller = Device("controller", "local", resource_group="here", group_max_concurrency=1)
    with World([local, controller]) as world:
        world.queue("p", "q", on="local")
        world.queue("job", "job2", on="controller", exclusive=True)
        world.runs("p")
        world.ends("p")
        world.expect(do.RunExclusive, "job")
        world.nothing()
        world.happens(ev.ExclusiveEnded("job"))
        world.expect(do.ReportDone, "job")
        world.runs("q")
        world.ends("q")
        world.expect(do.RunExclusive, "job2")


def test_ordinary_jobs_run_although_their_device_is_quarantined() -> None:
    with World([PI]) as world:
        world.happens(ev.DeviceQuarantined("pi", "disk full"))
        world.queue("job", on="pi", exclusive=True)
        world.expect(do.RunExclusive, "job")


# -- breaker ----------------------------------------------------------------------------------------------------------

FRAGILE = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=180.0, give_up_after_s=360.0)


def broken(world: World, *work_ids: str) -> None:
    """The device has gone down under the first of these points."""
    world.queue(*work_ids, on="pi")
    world.runs(work_ids[0])
    world.happens(lost(work_ids[0]))
    world.noted("device_down")


def test_an_open_breaker_costs_one_probe_per_cooldown_and_a_trial_closes_it() -> None:
    with World([FRAGILE], EXACT) as world:
        broken(world, "p", "q")
        assert board(world, "pi")["service"] == "down"
        assert "it is probed in 80 s" in world.campaign.explain("q", 100.0)
        world.advance(179.0)
        world.nothing()
        world.advance(1.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.expect(do.Journal, "p", n=1)
        world.nothing()  # exactly one point goes through
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(a("p"), "finished"))
        world.expect(do.Attach, "p")
        world.ends("p")
        world.noted("device_up", recoveries=1)
        world.runs("q")


@pytest.mark.parametrize("failed_by", ["a question", "a start", "a run that ended while we were away"])
def test_a_failed_trial_costs_the_point_no_attempt(failed_by: str) -> None:
    with World([FRAGILE], Policy(retry=RetryPolicy(max_attempts=2, jitter=0.0))) as world:
        broken(world, "p")
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.AskStatus, "p")
        if failed_by == "a question":
            world.happens(lost("p"))
        elif failed_by == "a start":
            world.happens(ev.StatusAnswered(a("p"), "absent"))  # this is known now, and costs one
            world.expect(do.StartAttempt, "p")
            world.happens(ev.AttemptRefused(a("p"), Failure(FailureClass.TRANSPORT, "no answer")))
        else:
            world.happens(ev.StatusAnswered(a("p"), "finished"))
            world.expect(do.Attach, "p")
            world.happens(ev.ResultArrived(a("p"), Evidence("lease_expired")))
        assert world.campaign.items["p"].repeats == (failed_by == "a start")
        assert board(world, "pi")["service"] == "down"


def test_down_for_two_cooldowns_without_a_completed_run_drains_the_queue_into_holes() -> None:
    with World([FRAGILE, TWO], EXACT) as world:
        broken(world, "p", "q")
        world.queue("r", on="two")
        world.runs("r")
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        world.noted("probe_failed", error="no route to host")
        world.nothing()
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        world.noted("given_up")
        world.becomes_hole("p", because="taken out of service")
        world.becomes_hole("q", because="no route to host")
        world.ends("r")


def test_nobody_is_probed_for_nothing() -> None:
    with World([FRAGILE], Policy(retry=RetryPolicy(max_attempts=1, jitter=0.0))) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(a("p")))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptRefused(a("p"), Failure(FailureClass.TRANSPORT, "no answer")))
        world.becomes_hole("p", because="no answer")
        world.advance(10_000.0)
        world.nothing()
        world.queue("late", on="pi")
        world.expect(do.Probe, "pi")


def test_never_give_up_means_never() -> None:
    forever = Device("pi", "ssh", max_transport_failures=1, give_up_after_s=None)
    with World([forever], EXACT) as world:
        broken(world, "p")
        for _ in range(50):
            world.advance(180.0)
            world.expect(do.Probe, "pi")
            world.happens(ev.ProbeAnswered("pi", False))
        assert world.campaign.open_work() == ["p"]


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_drain_lets_running_points_finish_and_reports_the_rest_as_not_started() -> None:
    with World([PI]) as world:
        world.queue("p", "q", on="pi")
        world.queue("job", on="pi", exclusive=True, position=9)
        world.runs("p")
        world.happens(ev.CancelRequested(drain=True))
        for work_id in ("q", "job"):
            assert world.expect(do.ReportDone, work_id, outcome="cancelled").failure is not None
        world.ends("p")
        world.queue("late", on="pi")
        world.expect(do.ReportDone, "late", outcome="cancelled")


def test_kill_stops_what_runs_and_then_says_not_done() -> None:
    with World([TWO]) as world:
        world.queue("p", "q", "r", on="two")
        world.runs("p")
        world.expect(do.Journal, "q")
        world.happens(ev.Journaled(a("q")))
        world.expect(do.StartAttempt, "q")
        world.happens(ev.CancelRequested(drain=False))
        world.expect(do.ReportDone, "r", outcome="cancelled")
        world.expect(do.Kill, "p")
        world.happens(ev.AttemptStarted(a("q")))  # was on its way
        world.expect(do.Kill, "q")
        world.happens(ev.ResultArrived(a("p"), Evidence("stopped")))  # the answer to its Attach
        world.happens(ev.KillProven(a("p")), ev.KillProven(a("q")))
        world.expect(do.ReportDone, "p", outcome="cancelled")
        world.expect(do.ReportDone, "q", outcome="cancelled")


def test_a_kill_that_never_reaches_the_device_ends_too() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(ev.CancelRequested(drain=False))
        world.expect(do.Kill, "p")
        world.happens(lost("p"))
        assert world.campaign.open_work() == ["p"]
        world.happens(lost("p"))
        world.noted("kill_unproven")
        world.expect(do.ReportDone, "p", outcome="cancelled")


def test_a_second_ctrl_c_turns_drain_into_kill_and_never_back() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(ev.CancelRequested(drain=True), ev.CancelRequested(drain=False), ev.CancelRequested(drain=True))
        world.expect(do.Kill, "p")
        world.happens(ev.KillProven(a("p")))
        world.expect(do.ReportDone, "p", outcome="cancelled")


def test_a_point_that_parses_when_the_kill_comes_is_still_recorded() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), Evidence("done", 0)))
        world.expect(do.Parse, "p")
        world.happens(ev.CancelRequested(drain=False), ev.Parsed(a("p"), None))
        world.publishes("p")
        world.expect(do.Ack, "p")
        world.expect(do.ReportDone, "p", outcome="ok")


def test_a_full_disk_stops_new_work_everywhere_and_is_said_once() -> None:
    with World([PI, TWO]) as world:
        world.queue("p", "q", on="pi")
        world.queue("r", "s", "t", on="two")
        world.runs("p")
        world.runs("r")
        world.runs("s")
        for work_id in ("p", "r"):
            world.happens(ev.ResultArrived(a(work_id), Evidence("done", 0)))
            world.expect(do.Parse, work_id)
            world.happens(ev.Parsed(a(work_id), None))
            world.expect(do.Publish, work_id)
        world.happens(ev.PublishFailed("p", "no space left on device"))
        for work_id in ("q", "t"):
            world.expect(do.ReportDone, work_id, outcome="cancelled")
        report = world.expect(do.ReportDone, "p", outcome="cancelled")
        assert report.failure is not None
        assert "no space left" in report.failure.message
        world.happens(ev.PublishFailed("r", "no space left on device"))
        world.expect(do.ReportDone, "r", outcome="cancelled")  # no Ack: the device keeps the result
        world.ends("s")  # what runs may still be lucky
        assert [note.kind for note in world.notes].count("stopped") == 1


def test_a_claim_that_cannot_be_written_starts_nothing() -> None:
    with World([PI]) as world:
        world.queue("p", "q", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.JournalFailed(a("p"), "read-only file system"))
        world.expect(do.ReportDone, "q", outcome="cancelled")
        world.expect(do.ReportDone, "p", outcome="cancelled")


# -- what must not happen ---------------------------------------------------------------------------------------------


def test_an_answer_of_an_attempt_that_is_over_is_counted_and_dropped() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(ev.ResultArrived(a("p"), Evidence("lease_expired")))
        world.happens(lost("p"))
        world.noted("stale_event", event="TransportFailed", attempt=1)
        world.advance(5.0)
        world.runs("p", n=2)
        world.happens(ev.ResultArrived(a("p", 1), Evidence("done", 0)))
        assert world.campaign.dropped_events == 2
        world.ends("p")


def test_an_event_that_cannot_be_raises_with_the_story() -> None:
    world = World([PI])
    world.queue("p", on="pi")
    world.happens(ev.Journaled(a("p")))
    with pytest.raises(
        InternalError, match=r"p on pi: Parsed.*in state Starting.*story: 0.000 s Turn; 0.000 s Journaled"
    ):
        world.campaign.handle(ev.Parsed(a("p"), None), 1.0)


def test_an_internal_failure_ends_the_run_loudly() -> None:
    world = World([PI])
    world.queue("p", on="pi")
    world.happens(ev.Journaled(a("p")))
    failure = Failure(FailureClass.INTERNAL, "KeyError: 'argv'")
    with pytest.raises(InternalError, match="KeyError"):
        world.campaign.handle(ev.AttemptRefused(a("p"), failure), 1.0)


@pytest.mark.parametrize(
    "event",
    [
        ev.PointsQueued((ev.Work("x", "nowhere"),)),
        ev.PointsQueued((ev.Work("p", "pi"),)),
        ev.DeviceAdded(PI),
        ev.Published("never"),
        ev.AttemptStarted(AttemptId("never", 1)),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_callers_mistake_is_refused_by_name(event: ev.Event) -> None:
    world = World([PI])
    world.queue("p", on="pi")
    with pytest.raises(InternalError, match=r"nowhere|twice|never"):
        world.campaign.handle(event, 0.0)


def test_a_forced_point_runs_again_under_a_new_number() -> None:
    with World([PI]) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.ends("p")
        world.queue("p", on="pi")
        world.runs("p", n=2)
        world.ends("p")


def test_a_timer_that_fires_early_is_set_again() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.happens(lost("p"))
        timer = world.campaign.items["p"].state.timer  # type: ignore[union-attr]
        world.happens(ev.TimerFired(timer))
        assert "backs off" in world.campaign.explain("p", 0.0)[0]
        world.advance(5.0)
        world.expect(do.Journal, "p")
