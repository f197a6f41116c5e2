"""Promise 9: at most one run is active on a device slot; a retry starts only after the earlier attempt is known dead or
was adopted.

Shown with a controller that comes back while its run still goes, and with a death that nobody can prove.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.helpers_engine import Told, make_plan, only, run
from engine.helpers_scripted import scripted
from promises.helpers_promises import Diary, Property, campaigns, here, until
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.engine import Engine
from sidewinder.model import AttemptId, Device
from sidewinder.testing import World


def test_a_controller_that_comes_back_waits_for_what_it_left(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    points = [diary.point("long", waits=True), diary.point("next"), diary.point("last")]
    plan = make_plan(root, points, devices=[here(tmp_path)])
    told = Told()
    first = Engine(told)
    first.add_lab(str(root), plan)
    keys = [(str(root), run_id) for run_id in plan.points]
    first.submit(keys[:1])
    until(lambda: diary.words == ["+long"], "it runs")
    first.shutdown(0.1)  # and leaves it running
    told = Told()
    second = Engine(told)
    second.add_lab(str(root), plan)
    second.submit(keys)
    told.until(lambda told: any(e["kind"] == "plan" for e in told.events), "the second one is at work")
    diary.go.touch()
    told.wait(3)
    assert second.shutdown(20)
    assert diary.began() == {"long": 1, "next": 1, "last": 1}
    assert diary.most_at_once() == 1, diary.words


def test_what_may_have_started_is_asked_for_and_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pi = scripted(monkeypatch, "pi")["pi"]
    pi.lose = ["start"]
    points = [{"backend": "command", "command": ("true",), "device": "pi"}]
    plan = make_plan(tmp_path / "runs", points, devices=[Device("pi", "ssh")])
    run(tmp_path / "runs", plan)
    assert pi.ran == [(only(plan), 1)]
    assert pi.asked["status"] == 1


def test_a_death_that_cannot_be_proven_is_followed_by_nothing() -> None:
    with World([Device("pi", "ssh")]) as world:
        world.queue("p", "q", on="pi")
        world.runs("p")
        world.happens(ev.TransportFailed(AttemptId("p", 1), "connection reset"))
        world.runs("q")
        world.advance(10.0)
        world.ends("q")
        world.expect(do.Journal, "p")
        world.happens(ev.Journaled(AttemptId("p", 1)))
        world.expect(do.AskStatus, "p")
        world.happens(ev.StatusAnswered(AttemptId("p", 1), "lost"))
        world.expect(do.Kill, "p")
        world.nothing()  # the next attempt waits for the proof
        world.happens(ev.KillUnproven(AttemptId("p", 1), "a process would not die"))
        world.becomes_hole("p", because="could not be proven dead")
        world.advance(10_000.0)


def test_in_campaigns_with_runners_that_die(record_property: Property) -> None:
    campaigns(record_property, "Kill failed", "AttemptBusy")
