"""An attempt whose pod or container died: what its class costs, and that nothing is asked or killed for it."""

from __future__ import annotations

import pytest

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.breaker import Closed
from sidewinder.core.policy import MAX_PREEMPTIONS
from sidewinder.model import AttemptId, Device, Failure, FailureClass, Policy, RetryPolicy
from sidewinder.testing import World

POD = Device("pod", "kubernetes", max_transport_failures=2)
EXACT = Policy(retry=RetryPolicy(backoff_s=5.0, jitter=0.0))
PROOF = {"cause": "evicted", "proof": "container"}


def died(failure_class: FailureClass, n: int = 1) -> ev.AttemptDied:
    return ev.AttemptDied(AttemptId("p", n), Failure(failure_class, "the pod is gone", PROOF))


def in_row(world: World) -> int:
    breaker = world.campaign.lanes["pod"].breaker
    assert isinstance(breaker.state, Closed)
    return breaker.in_row


@pytest.mark.parametrize("failure_class", [FailureClass.MEMORY, FailureClass.MEASUREMENT])
def test_a_result_is_published_without_a_raw_one(failure_class: FailureClass) -> None:
    with World([POD], EXACT) as world:
        world.queue("p", on="pod")
        world.runs("p")
        world.happens(died(failure_class))
        publish = world.publishes("p")
        assert publish.attempt == AttemptId("p", 1)
        assert publish.failure is not None
        assert (publish.failure.failure_class, publish.failure.evidence) == (failure_class, PROOF)
        world.expect(do.ReportDone, "p", outcome="failed")
        world.nothing()  # no Ack: to tell a pod that is gone to forget would make a new one


def test_an_eviction_is_queued_again_and_the_breaker_hears_nothing() -> None:
    with World([POD], EXACT) as world:
        world.queue("p", on="pod")
        for n in range(1, MAX_PREEMPTIONS + 1):
            world.runs("p", n=n)
            world.happens(died(FailureClass.PREEMPTED, n))
            world.nothing()
            note = world.noted("retry", attempt=n, failure_class="preempted", over=True)
            assert note.fields["evidence"] == PROOF
            assert in_row(world) == 0
            world.advance(120.0)
        world.runs("p", n=MAX_PREEMPTIONS + 1)
        world.happens(died(FailureClass.PREEMPTED, MAX_PREEMPTIONS + 1))
        world.becomes_hole("p", because="preempted 6 times")


def test_a_deleted_pod_costs_an_attempt_and_is_counted_once() -> None:
    with World([POD], EXACT) as world:
        world.queue("p", on="pod")
        world.runs("p")
        world.happens(died(FailureClass.TRANSPORT))
        world.nothing()
        assert world.noted("retry", attempt=1, failure_class="transport", over=True).fields["evidence"] == PROOF
        assert in_row(world) == 1
        world.advance(5.0)
        world.runs("p", n=2)  # it is not asked about: its end is proven
        world.ends("p")


def test_a_death_that_is_heard_of_when_the_device_is_asked_is_not_counted_again() -> None:
    with World([POD], EXACT) as world:
        world.queue("p", on="pod")
        world.runs("p")
        world.happens(ev.TransportFailed(AttemptId("p", 1), "link lost for good"))
        world.advance(5.0)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(died(FailureClass.TRANSPORT))
        assert world.noted("retry", attempt=1, over=True).fields["evidence"] == PROOF
        assert in_row(world) == 1
        world.runs("p", n=2)
        world.ends("p")


def test_what_an_earlier_invocation_started_costs_nothing() -> None:
    with World([POD], Policy(retry=RetryPolicy(max_attempts=1, jitter=0.0))) as world:
        world.queue("p", on="pod", last_attempt=1, in_flight=True)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(died(FailureClass.TRANSPORT))
        world.noted("retry", attempt=1, over=True)
        world.runs("p", n=2)
        world.ends("p")


@pytest.mark.parametrize("failure_class", [FailureClass.PREEMPTED, FailureClass.MEMORY])
def test_a_run_that_is_being_stopped_and_dies_is_over(failure_class: FailureClass) -> None:
    """Two answers are owed, to Attach and to Kill; a link that failed gives the second, and yet nothing is unproven."""
    with World([POD], EXACT) as world:
        world.queue("p", on="pod")
        world.runs("p")
        world.happens(ev.CancelRequested(drain=False))
        world.expect(do.Kill, "p")
        world.happens(ev.TransportFailed(AttemptId("p", 1), "the pod is gone"))
        world.happens(died(failure_class))
        world.expect(do.ReportDone, "p", outcome="cancelled")
        assert not [note for note in world.notes if note.kind == "kill_unproven"]
