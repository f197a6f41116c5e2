"""B29: retries covered some steps of the way only, ran out on a bad hour, and took a lost worker for a failed task.

Every step of the way is under one rule; a long outage opens the breaker, points wait as `give_up_after_s` says, and
the sweep goes on by itself. What the workload says is final at once. Attempts that transport cost are counted apart.
"""

from __future__ import annotations

import pytest

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.model import AttemptId, Device, Evidence, Policy, RetryPolicy
from sidewinder.testing import World

POLICY = Policy(retry=RetryPolicy(max_attempts=3, jitter=0.0))
OUTAGE_S = 3 * 3600.0


def pi(give_up_after_s: float | None) -> Device:
    return Device("pi", "ssh", give_up_after_s=give_up_after_s)


def lost(n: int, why: str) -> ev.TransportFailed:
    return ev.TransportFailed(AttemptId("p", n), why)


def test_every_step_of_the_way_is_retried_and_the_workloads_no_is_final() -> None:
    """Connect refused twice, status timed out, the fetch cut off; then the true exit code 2."""
    with World([pi(None)], POLICY) as world:
        world.queue("p", on="pi")
        for _ in range(2):  # the start never gets through; the device is asked, knows of nothing
            world.expect(do.Journal, "p", n=1)
            world.happens(ev.Journaled(AttemptId("p", 1)))
            if world.campaign.items["p"].doubtful:
                world.expect(do.AskStatus, "p")
                world.happens(ev.StatusAnswered(AttemptId("p", 1), "absent"))
            world.expect(do.StartAttempt, "p")
            world.happens(lost(1, "connection refused"))
            world.advance(10.0)
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(AttemptId("p", 1), "running"))  # it had got through after all
        world.expect(do.Attach, "p")
        world.happens(lost(1, "connection reset in the fetch"))
        assert world.campaign.board()["pi"]["service"] == "down"
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(lost(1, "time-out"))  # a question that fails costs nothing
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        world.expect(do.Journal, "p", n=1)
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(AttemptId("p", 1), "finished"))
        world.expect(do.Attach, "p")
        assert "transport has cost 1 of 3 attempts" in " ".join(world.campaign.explain("p", world.clock.monotonic_s))
        world.happens(ev.ResultArrived(AttemptId("p", 1), Evidence("done", 2)))
        world.expect(do.Parse, "p")
        world.happens(ev.Parsed(AttemptId("p", 1), None))
        failure = world.publishes("p").failure
        assert failure is not None
        assert "exit code 2" in failure.message
        world.expect(do.Ack, "p")
        world.expect(do.ReportDone, "p", outcome="failed")


@pytest.mark.parametrize("give_up_after_s", [None, 2 * OUTAGE_S])
def test_points_wait_out_three_hours_and_go_on_by_themselves(give_up_after_s: float | None) -> None:
    with World([pi(give_up_after_s)], POLICY) as world:
        world.queue("p", "q", "r", on="pi")
        gone_dark(world)
        probes = 0
        while world.clock.monotonic_s < OUTAGE_S:
            world.advance(180.0)
            world.expect(do.Probe, "pi")
            world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
            world.nothing()
            probes += 1
        assert probes <= OUTAGE_S / 180.0 + 1
        assert set(world.campaign.open_work()) == {"p", "q", "r"}
        world.advance(180.0)
        world.expect(do.Probe, "pi")
        world.happens(ev.ProbeAnswered("pi", True))
        measured = []
        while world.campaign.open_work():
            journal = world.expect(do.Journal)
            measured.append(journal.attempt.work_id)
            world.happens(ev.Journaled(journal.attempt))
            for ask in [i for i in world.pending if isinstance(i, do.AskStatus)]:
                world.expect(do.AskStatus)
                world.happens(ev.StatusAnswered(ask.attempt, "absent"))
            world.expect(do.StartAttempt)
            world.happens(ev.AttemptStarted(journal.attempt))
            world.expect(do.Attach)
            world.ends(journal.attempt.work_id)
        assert sorted(measured) == ["p", "q", "r"]


def test_by_default_two_cooldowns_are_waited_and_then_every_point_says_why_it_is_open() -> None:
    with World([pi(360.0)], POLICY) as world:
        world.queue("p", "q", on="pi")
        gone_dark(world)
        for _ in range(2):
            world.advance(180.0)
            world.expect(do.Probe, "pi")
            world.happens(ev.ProbeAnswered("pi", False, "no route to host"))
        for work_id in "pq":
            world.becomes_hole(work_id, because="no route to host")


def gone_dark(world: World) -> None:
    """Every start is refused until the breaker opens."""
    while world.campaign.board()["pi"]["service"] != "down":
        if not world.pending:
            world.advance(1.0)
            continue
        journal = world.expect(do.Journal)
        world.happens(ev.Journaled(journal.attempt))
        (asked,) = world.pending
        world.pending.clear()
        assert isinstance(asked, do.StartAttempt | do.AskStatus)
        world.happens(ev.TransportFailed(journal.attempt, "no route to host"))
