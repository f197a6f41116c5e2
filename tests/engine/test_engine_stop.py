"""How an engine ends before its work is done: by a person, by a full disk, by a bug."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from engine.helpers_engine import Told, command, make_plan, noops, only, record, run
from sidewinder.core.campaign import Campaign
from sidewinder.core.events import Parsed
from sidewinder.engine import Engine
from sidewinder.errors import InternalError, LockHeld
from sidewinder.files import atomic
from sidewinder.model import Device


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


def waiting_points(tmp_path, count):
    """Each writes its pid and waits for `go`."""
    code = (
        "import os, sys, time, pathlib\n"
        f"p = pathlib.Path({str(tmp_path)!r})\n"
        "(p / ('pid' + sys.argv[1])).write_text(str(os.getpid()))\n"
        "while not (p / 'go').exists(): time.sleep(0.01)\n"
    )
    return [command(sys.executable, "-c", code, "{i}", parameters={"i": i}) for i in range(count)]


def started_engine(root, plan):
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda told: told.started or told.crash, "one started")
    return engine, told


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_drain_lets_what_runs_end_and_starts_nothing(tmp_path, local):
    root = tmp_path / "runs"
    plan = make_plan(root, waiting_points(tmp_path, 3), devices=[local])
    engine, told = started_engine(root, plan)
    engine.cancel(drain=True)
    told.wait(2)
    assert set(told.done.values()) == {"cancelled"}
    (tmp_path / "go").touch()
    told.wait(3)
    assert engine.shutdown(20)
    assert sorted(told.done.values()) == ["cancelled", "cancelled", "ok"]
    assert len(list((root / "records").rglob("*.json"))) == 1


def test_cancel_kills_what_runs_and_leaves_no_record(tmp_path, local):
    root = tmp_path / "runs"
    plan = make_plan(root, waiting_points(tmp_path, 2), devices=[local])
    engine, told = started_engine(root, plan)
    told.until(lambda _: list(tmp_path.glob("pid*")), "its process is there")
    engine.cancel()
    told.wait(2)
    assert engine.shutdown(20)
    assert set(told.done.values()) == {"cancelled"}
    assert not list((root / "records").rglob("*.json"))
    for path in tmp_path.glob("pid*"):
        assert not path.read_text() or not is_alive(int(path.read_text()))


def test_shutdown_is_bounded_while_something_runs(tmp_path, local):
    root = tmp_path / "runs"
    plan = make_plan(root, waiting_points(tmp_path, 1), devices=[local])
    engine, told = started_engine(root, plan)
    assert engine.shutdown(0.2) is False
    assert not told.done
    (tmp_path / "go").touch()
    assert set(run(root, plan).done.values()) == {"ok"}  # taken over by the next controller


def test_a_full_disk_stops_the_run_and_the_next_one_fetches_the_result(tmp_path, local, monkeypatch):
    root, log = tmp_path / "runs", tmp_path / "ran.log"
    point = command("sh", "-c", f"echo ran >> {log}; echo n=1", metrics={"n": r"n=(\d)"})
    plan = make_plan(root, [point, {**point, "parameters": {"i": 2}}], devices=[local])
    create = atomic.REAL.create

    def full(path):
        if "/records/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(path)

    monkeypatch.setattr(atomic.REAL, "create", full, raising=False)
    told = run(root, plan)
    assert set(told.done.values()) == {"cancelled"}
    assert all("disk" in failure.message for failure in told.failures.values())
    assert any("no new work" in event.get("message", "") for event in told.events)
    assert log.read_text() == "ran\n"
    monkeypatch.undo()
    assert set(run(root, plan).done.values()) == {"ok"}
    assert log.read_text() == "ran\n" * 2


def test_a_bug_ends_the_run_loudly(tmp_path, monkeypatch):
    plan = make_plan(tmp_path, noops(3))
    handle = Campaign.handle

    def broken(self, event, now_s):
        if isinstance(event, Parsed):
            raise ZeroDivisionError("a bug of ours")
        return handle(self, event, now_s)

    monkeypatch.setattr(Campaign, "handle", broken)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(tmp_path), plan)
    engine.submit([(str(tmp_path), run_id) for run_id in plan.points])
    told.until(lambda told: told.crash is not None, "the crash is told")
    assert isinstance(told.crash, ZeroDivisionError)
    assert engine.shutdown(5) is False
    with pytest.raises(InternalError):
        engine.submit([(str(tmp_path), next(iter(plan.points)))])
    assert os.listdir(tmp_path / "records") == [] if (tmp_path / "records").exists() else True
    monkeypatch.undo()
    assert set(run(tmp_path, plan).done.values()) == {"ok"}  # the run folder's lock was given back


def test_a_run_folder_has_one_controller(tmp_path):
    plan = make_plan(tmp_path, noops(1))
    first = Engine(Told())
    first.add_lab(str(tmp_path), plan)
    with pytest.raises(LockHeld):
        Engine(Told()).add_lab(str(tmp_path), plan)
    assert first.shutdown(5)
    run(tmp_path, plan)
    assert record(tmp_path, plan, only(plan))["status"] == "ok"
