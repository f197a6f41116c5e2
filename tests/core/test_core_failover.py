"""Declared failover as stories (M-118): what moves, where to, under whose name, and who waits for whom."""

from __future__ import annotations

import pytest

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.events import Work
from sidewinder.model import AttemptId, Device, Failure, FailureClass, Policy, RetryPolicy
from sidewinder.testing import World

ONCE = Policy(retry=RetryPolicy(max_attempts=1, jitter=0.0))
PI = Device("pi", "ssh", failover_to=("spare", "third"))
SPARE, THIRD = Device("spare", "ssh", failover_to=("third",)), Device("third", "ssh")


def fails(world: World, work_id: str) -> None:
    """The only attempt of this work fails for good."""
    world.expect(do.Journal, work_id)
    world.happens(ev.Journaled(AttemptId(work_id, 1)))
    world.expect(do.StartAttempt, work_id)
    world.happens(ev.AttemptRefused(AttemptId(work_id, 1), Failure(FailureClass.TRANSPORT, "no answer")))


def moves(world: World, work_id: str, to_device: str = "spare") -> str:
    """The device that stands in answers, and the copy is queued there."""
    world.expect(do.Move, work_id, to_device=to_device)
    copy = f"{work_id}-moved"
    world.happens(ev.Moved(work_id, to_device, copy, Work(copy, to_device, position=99)))
    return copy


def test_a_point_that_used_up_its_attempts_moves_and_its_own_record_is_a_hole_that_says_where() -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        copy = moves(world, "p")
        world.noted("moved", to_device="spare", moved_to=copy)
        failure = world.publishes("p").failure
        assert failure is not None
        assert failure.failure_class is FailureClass.NOT_ATTEMPTED
        assert failure.evidence["moved_to"] == copy
        assert "retry it on pi" in failure.message
        world.runs(copy)
        world.nothing()  # the original is not over before its copy
        assert "its copy p-moved" in world.campaign.explain("p", 0.0)[0]
        world.ends(copy)
        world.expect(do.ReportDone, "p", outcome="hole")


def test_without_a_declaration_nobody_else_is_asked() -> None:
    with World([Device("pi", "ssh"), SPARE], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        world.becomes_hole("p", because="no answer")


def test_what_a_dead_device_leaves_in_its_queue_moves_too() -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(ev.DeviceQuarantined("pi", "its host key changed"))
        copy = moves(world, "q")
        world.publishes("q")
        world.ends("p")  # what runs there goes on
        world.runs(copy)
        world.ends(copy)
        world.expect(do.ReportDone, "q", outcome="hole")


def test_a_stand_in_that_does_not_answer_is_passed_over() -> None:
    with World([PI, SPARE, THIRD], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        world.expect(do.Move, "p", to_device="spare")
        world.happens(ev.MoveRefused("p", "spare", "no route to host"))
        world.noted("move_refused", to_device="spare")
        moves(world, "p", "third")
        world.publishes("p")
        world.runs("p-moved")


def test_when_nobody_can_stand_in_it_is_a_plain_hole() -> None:
    with World([PI, SPARE, THIRD], ONCE) as world:
        world.happens(ev.DeviceQuarantined("third", "disk full"))
        world.queue("p", on="pi")
        fails(world, "p")
        world.expect(do.Move, "p", to_device="spare")
        world.happens(ev.MoveRefused("p", "spare", "no route to host"))
        failure = world.publishes("p").failure
        assert failure is not None
        assert "moved_to" not in failure.evidence
        world.expect(do.ReportDone, "p", outcome="hole")


def test_a_copy_is_never_moved_again() -> None:
    with World([PI, SPARE, THIRD], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        copy = moves(world, "p")
        world.publishes("p")
        fails(world, copy)
        world.becomes_hole(copy, because="no answer")
        world.expect(do.ReportDone, "p", outcome="hole")


def test_what_was_moved_and_measured_by_an_earlier_invocation_is_not_measured_again() -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        world.expect(do.Move, "p")
        world.happens(ev.Moved("p", "spare", "p-moved", None))
        failure = world.publishes("p").failure
        assert failure is not None
        assert "An earlier run moved it to spare as p-moved" in failure.message
        world.expect(do.ReportDone, "p", outcome="hole")


def test_a_device_that_is_busy_with_another_controller_is_no_reason_to_move() -> None:
    with World([PI, SPARE], Policy(busy_wait_s=0.0)) as world:
        world.queue("p", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.AttemptBusy(AttemptId("p", 1), "q7 of ada@laptop"))
        world.becomes_hole("p", because="ada@laptop")


def test_a_results_no_is_a_result_and_does_not_move() -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("p", on="pi")
        world.runs("p")
        world.ends("p", failure=Failure(FailureClass.MEASUREMENT, "too few rows"))


@pytest.mark.parametrize("drain", [True, False])
def test_a_stop_while_it_moves_leaves_a_hole_and_starts_nothing(drain: bool) -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("p", on="pi")
        fails(world, "p")
        world.expect(do.Move, "p")
        world.happens(ev.CancelRequested(drain))
        world.happens(ev.Moved("p", "spare", "p-moved", Work("p-moved", "spare")))
        world.expect(do.ReportDone, "p-moved", outcome="cancelled")
        world.publishes("p")
        world.expect(do.ReportDone, "p", outcome="hole")


def test_a_stop_while_the_copy_waits_ends_both() -> None:
    with World([PI, SPARE], ONCE) as world:
        world.queue("own", on="spare")
        world.runs("own")
        world.queue("p", on="pi")
        fails(world, "p")
        copy = moves(world, "p")
        world.publishes("p")
        world.happens(ev.CancelRequested(True))
        world.expect(do.ReportDone, copy, outcome="cancelled")
        world.expect(do.ReportDone, "p", outcome="hole")
        world.ends("own")
