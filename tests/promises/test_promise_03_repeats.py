"""Promise 3: what is repeated is ``transport``, ``preempted`` and, for fungible work, ``memory`` once. Each repeat,
re-attach and adoption is on disk at the moment it happens and named in the record's ``warnings``.

Shown on scripted machines; the machine itself looks into the ledger when it is asked to start again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.helpers_engine import Told, make_plan, only, record, run
from engine.helpers_scripted import Machine, scripted
from promises.helpers_promises import Property, campaigns, lines
from sidewinder.engine import Engine
from sidewinder.model import Device

PI = Device("pi", "ssh", max_transport_failures=9)
POINT = {"backend": "command", "command": ("true",), "device": "pi"}


@pytest.fixture
def pi(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return scripted(monkeypatch, "pi")["pi"]


def test_a_repeat_is_on_disk_before_it_starts_and_in_the_record(tmp_path: Path, pi: Machine) -> None:
    root, seen = tmp_path / "runs", []

    def start(run_id: str, n: int) -> None:
        pi.returncode = 143 if n == 1 else 0  # the first is evicted
        seen.append([line["event"] for line in lines(root)])

    pi.on["start"] = start
    plan = make_plan(root, [POINT], devices=[PI])
    assert set(run(root, plan).done.values()) == {"ok"}
    assert pi.ran == [(only(plan), 1), (only(plan), 2)]
    assert seen == [[], ["preempted"]], "the line is there when the second one is asked for"
    assert any("attempt 1" in w and "repeated" in w for w in record(root, plan, only(plan))["warnings"])


def test_a_reattach_is_no_repeat_and_is_told_as_well(tmp_path: Path, pi: Machine) -> None:
    root = tmp_path / "runs"
    pi.lose = ["start"]  # it began; nobody heard of it
    plan = make_plan(root, [POINT], devices=[PI])
    assert set(run(root, plan).done.values()) == {"ok"}
    assert pi.ran == [(only(plan), 1)]
    assert [line["event"] for line in lines(root)] == ["transport_failure", "reattached"]
    assert any("taken over" in w for w in record(root, plan, only(plan))["warnings"])


def test_an_adoption_is_told_as_well(tmp_path: Path, pi: Machine) -> None:
    root = tmp_path / "runs"
    plan = make_plan(root, [POINT], devices=[PI])
    pi.hold.add(only(plan))
    pi.refuse = ["wait"] * 1000
    told = Told()
    first = Engine(told)
    first.add_lab(str(root), plan)
    first.submit([(str(root), only(plan))])
    told.until(lambda _: pi.ran, "it runs")
    first.shutdown(0.0)
    pi.refuse = []
    pi.hold.clear()
    pi.results[only(plan), 1] = _result()
    assert set(run(root, plan).done.values()) == {"ok"}
    assert pi.ran == [(only(plan), 1)]
    assert "adopted" in [line["event"] for line in lines(root)]
    assert "adopted" in [line["event"] for line in lines(root, "journal.jsonl")]
    assert any("earlier invocation" in w for w in record(root, plan, only(plan))["warnings"])


def _result() -> object:
    from engine.helpers_scripted import NOTHING
    from sidewinder.model import RawResult

    return RawResult("done", 0, 0.1, NOTHING, NOTHING)


def test_in_campaigns_with_lost_links_and_restarts(record_property: Property) -> None:
    campaigns(record_property, "StartAttempt failed", "Attach failed", "controller killed")
