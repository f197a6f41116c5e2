"""Promise 1: every planned point ends as exactly one of: result, failed result, hole, or (after Ctrl-C) not started.
Also when the controller's disk is full.

Shown with real runs and a machine that is gone; ``Told`` fails the test where a key is told twice.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from engine.helpers_engine import Told, make_plan, run
from engine.helpers_scripted import scripted
from promises.helpers_promises import Diary, Property, campaigns, here, records, until
from sidewinder.engine import Engine
from sidewinder.files import atomic
from sidewinder.files.summary import summarise
from sidewinder.model import Device


def test_a_result_a_failed_result_and_a_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = scripted(monkeypatch, "well", "says-no", "gone")
    machines["says-no"].returncode = 3
    machines["gone"].down = True
    quick = {"max_transport_failures": 1, "recovery_after_s": 0.01, "give_up_after_s": 0.0}
    devices = [Device(name, "ssh", **quick) for name in machines]
    points = [
        {"backend": "command", "command": ("true",), "device": d, "parameters": {"i": i}}
        for d in machines
        for i in (1, 2)
    ]
    plan = make_plan(tmp_path / "runs", points, devices=devices)
    told = run(tmp_path / "runs", plan)
    ends = {run_id: told.done[str(tmp_path / "runs"), run_id] for run_id in plan.points}
    expected = {"well": "ok", "says-no": "failed", "gone": "hole"}
    assert ends == {run_id: expected[point.device] for run_id, point in plan.points.items()}
    written = records(tmp_path / "runs")
    assert set(written) == set(plan.points), "each has a record, holes too"
    for run_id, record in written.items():
        hole = (record.get("failure") or {}).get("class") == "not_attempted"
        assert (record["status"], hole) == (("ok" if ends[run_id] == "ok" else "failed"), ends[run_id] == "hole")


def test_after_ctrl_c_the_rest_was_not_started(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    plan = make_plan(root, [diary.point(name, waits=True) for name in "abc"], devices=[here(tmp_path)])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    until(lambda: diary.words, "one runs")
    engine.cancel(drain=True)
    diary.go.touch()
    told.wait(3)
    assert engine.shutdown(20)
    assert sorted(told.done.values()) == ["cancelled", "cancelled", "ok"]
    assert len(records(root)) == 1
    assert summarise(str(root), plan).total.open == 2


def test_on_a_full_disk_nothing_is_called_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    plan = make_plan(root, [diary.point(name) for name in "ab"], devices=[here(tmp_path)])
    create = atomic.REAL.create

    def full(path: str) -> int:
        if "/records/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(path)

    monkeypatch.setattr(atomic.REAL, "create", full, raising=False)
    assert set(run(root, plan).done.values()) == {"cancelled"}
    assert records(root) == {}
    monkeypatch.undo()
    assert set(run(root, plan).done.values()) == {"ok"}
    assert diary.began() == {"a": 1, "b": 1}, "what had ended with nowhere to put it is fetched, not measured again"


def test_in_campaigns_with_full_disks_and_stops(record_property: Property) -> None:
    campaigns(record_property, "disk full", "stopped by a person", "drained by a person", "moved")
