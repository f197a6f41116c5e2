"""Promise 6: an open breaker costs one cheap probe per cooldown and no point its place: a failed trial point keeps its
attempts. Its state survives a restart, and a new invocation probes at once before it gives anything up.

Shown in virtual hours, and over two real invocations on a scripted machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.helpers_engine import Told, make_plan, run
from engine.helpers_scripted import scripted
from promises.helpers_promises import Property, campaigns, lines
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.engine import Engine
from sidewinder.model import AttemptId, Device, Policy, RetryPolicy
from sidewinder.testing import World

EXACT = Policy(retry=RetryPolicy(max_attempts=2, jitter=0.0))
PI = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=180.0, give_up_after_s=None)


def test_one_probe_a_cooldown_and_nothing_else() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(ev.TransportFailed(AttemptId("p", 1), "no route to host"))
        for _ in range(20):  # an hour
            world.advance(179.0)
            world.nothing()
            world.advance(1.0)
            world.expect(do.Probe, "pi")
            world.nothing()
            world.happens(ev.ProbeAnswered("pi", False, "no route to host"))


def test_a_failed_trial_costs_its_point_neither_an_attempt_nor_its_place() -> None:
    with World([PI], EXACT) as world:
        world.queue("p", "q", on="pi")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.StartAttempt, "p")
        world.happens(ev.TransportFailed(AttemptId("p", 1), "no route to host", 0.0))
        for trial in range(5):  # more often than it has attempts
            world.advance(180.0)
            world.expect(do.Probe, "pi")
            world.happens(ev.ProbeAnswered("pi", True))
            world.expect(do.Journal, "p")
            world.happens(ev.Journaled(world.attempt("p")))
            if trial == 0:  # what became of the first start, which was no trial: that one is paid for
                world.expect(do.AskStatus, "p")
                world.happens(ev.StatusAnswered(AttemptId("p", 1), "absent"))
            else:
                world.expect(do.AskStatus, "p")
                world.happens(ev.StatusAnswered(AttemptId("p", 1), "absent"))
            world.expect(do.StartAttempt, "p")
            world.happens(ev.TransportFailed(AttemptId("p", 1), "no route to host", 0.0))
        assert world.campaign.items["p"].repeats == 1


def test_the_next_invocation_asks_at_once_and_before_it_gives_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, pi = tmp_path / "runs", scripted(monkeypatch, "pi")["pi"]
    device = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=3600.0, give_up_after_s=7200.0)
    points = [{"backend": "command", "command": ("true",), "device": "pi", "parameters": {"i": i}} for i in range(3)]
    plan = make_plan(root, points, devices=[device])
    pi.down = True
    told = Told()
    first = Engine(told)
    first.add_lab(str(root), plan)
    first.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda told: "down" in told.kinds(), "it is down")
    first.cancel(drain=True)
    told.wait(3)
    assert first.shutdown(20)
    assert [line["state"] for line in lines(root, "journal.jsonl") if line["event"] == "breaker"] == ["open"]
    pi.down = False
    pi.asked.clear()
    assert set(run(root, plan).done.values()) == {"ok"}, "an hour's cooldown is not waited for"
    assert pi.asked["probe"] == 1
    assert [line["state"] for line in lines(root, "journal.jsonl") if line["event"] == "breaker"][-1] == "closed"


def test_in_campaigns_with_devices_that_go_down(record_property: Property) -> None:
    campaigns(record_property, "Probe failed", "early timer", "controller killed")
