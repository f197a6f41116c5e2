"""A host that loses its power for good, and whether others take its points over.

| the lab | outcome |
| --- | --- |
| declares `failover_to` | its points are moved: new run ids that say where from, the originals stay open |
| does not | its points are holes, no other device is touched |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netns.conftest import MakeSweep
from netns.controller import quicken, witnessed
from netns.lab_hosts import LabHosts

LEASE_S = 4.0  # of a device that is gone for good: so long it is called
GIVES_UP = {"max_transport_failures": 2, "recovery_after_s": 0.5, "give_up_after_s": 1.0}


@pytest.fixture
def gone(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(lease_s=LEASE_S, setter=monkeypatch.setattr)


def test_points_move_where_the_lab_declares_it(lab: LabHosts, sweep: MakeSweep, gone: None) -> None:
    dead, other, third = lab
    devices = [dead.device(failover_to=("h2",), **GIVES_UP), other.device(), third.device()]
    points = [witnessed("h1", "a"), witnessed("h1", "b"), witnessed("h2", "c", 0.1), witnessed("h3", "d", 0.1)]
    one = sweep(points, devices)
    one.until_running(dead, "a")
    dead.power_off()
    other.witness.let_go()
    assert one.finish() == {"a": "hole", "b": "hole", "c": "ok", "d": "ok"}
    assert sorted(execution.run for execution in other.witness.executions) == ["a", "b", "c"]
    assert [execution.run for execution in third.witness.executions] == ["d"]
    assert other.witness.overlaps() == []
    copies = {}
    for path in Path(one.root, "records", "h2").glob("*.json"):
        written = json.loads(path.read_text())
        copies[written["run_id"]] = written
    for run in "ab":
        original = one.record(run)
        assert (original["status"], original["failure"]["class"]) == ("failed", "not_attempted")
        copy = copies[original["moved_to"]]
        assert copy["run_id"] != original["run_id"]
        assert copy["status"] == "ok"
        assert copy["identity"]["failover_from"] == "h1"
        assert copy["device"]["device_id"] == "h2"
        assert copy["metrics"]["start_ns"] in [execution.start_ns for execution in other.witness.of(run)]
        assert "failover-from:h1" in copy["tags"]


def test_without_that_no_other_device_is_touched(lab: LabHosts, sweep: MakeSweep, gone: None) -> None:
    dead, other, third = lab
    devices = [dead.device(**GIVES_UP), other.device(), third.device()]
    log = (third.folder / "sshd.log").read_text()
    one = sweep([witnessed("h1", "a"), witnessed("h2", "c", 0.1)], devices)
    one.until_running(dead, "a")
    dead.power_off()
    assert one.finish() == {"a": "hole", "c": "ok"}
    assert "moved_to" not in one.record("a")
    assert [execution.run for execution in other.witness.executions] == ["c"]
    assert (third.folder / "sshd.log").read_text() == log
