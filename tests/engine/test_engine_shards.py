"""Shards of points that really run: each has its record at once, the manifest comes last."""

from __future__ import annotations

import errno

import pytest

from engine.helpers_engine import Told, command, make_plan, noops, record
from sidewinder.engine import Engine, reactor
from sidewinder.files import atomic, shards
from sidewinder.ids import shard_id
from sidewinder.model import Device


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


def run_shard(root, plan, run_ids=None):
    run_ids = list(plan.points) if run_ids is None else run_ids
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit_shard(str(root), shard_id(run_ids), run_ids)
    told.wait(1)
    assert engine.shutdown(20)
    return told


def manifest(root, plan):
    return shards.read(str(root / "shards" / "local" / f"{shard_id(plan.points)}.json"))


def test_a_shard_with_a_failed_point(tmp_path, local):
    root = tmp_path / "runs"
    plan = make_plan(root, [command("true"), command("false"), *noops(1)], devices=[local])
    good, bad, noop = plan.points
    told = run_shard(root, plan)
    assert list(told.done.values()) == ["failed"]
    assert bad in next(iter(told.failures.values())).message
    assert {run_id: entry.status for run_id, entry in manifest(root, plan).items()} == {
        good: "ok",
        bad: "failed",
        noop: "ok",
    }
    assert len(told.started) == 1  # one Snakemake job starts once


def test_only_what_is_not_done_is_measured_again(tmp_path, local):
    root, log = tmp_path / "runs", tmp_path / "ran"
    points = [command("sh", "-c", f"echo {i} >> {log}; test -e {tmp_path}/good || exit {i}") for i in range(2)]
    plan = make_plan(root, points, devices=[local])
    assert list(run_shard(root, plan).done.values()) == ["failed"]
    (tmp_path / "good").touch()
    assert list(run_shard(root, plan).done.values()) == ["ok"]
    assert sorted(log.read_text().split()) == ["0", "1", "1"]
    assert {entry.status for entry in manifest(root, plan).values()} == {"ok"}


def test_a_disk_that_is_full_for_the_manifest_loses_no_record(tmp_path, local, monkeypatch):
    root = tmp_path / "runs"
    plan = make_plan(root, [command("true")], devices=[local])
    create = atomic.REAL.create

    def full(path):
        if "/shards/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(path)

    monkeypatch.setattr(atomic.REAL, "create", full, raising=False)
    told = run_shard(root, plan)
    assert list(told.done.values()) == ["cancelled"]
    assert "disk is full" in next(iter(told.failures.values())).message
    (run_id,) = plan.points
    assert record(root, plan, run_id)["status"] == "ok"


@pytest.mark.parametrize("slice_s", [-1.0, 0.02], ids=["a slice an event", "as it is"])
def test_a_disk_that_is_full_for_inline_records_reports_none_of_them(tmp_path, monkeypatch, slice_s):
    # A slice may end between a point's record and its report: the record of one must not go down with another's.
    monkeypatch.setattr(reactor, "SLICE_S", slice_s)
    plan = make_plan(tmp_path, noops(30), devices=[Device("local", "local", max_concurrency=8)])
    create = atomic.REAL.create

    def full(path):
        if "/records/" in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(path)

    monkeypatch.setattr(atomic.REAL, "create", full, raising=False)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(tmp_path), plan)
    engine.submit([(str(tmp_path), run_id) for run_id in plan.points])
    told.wait(30)
    assert engine.shutdown(20)
    assert set(told.done.values()) == {"cancelled"}
    assert any("no new work" in event.get("message", "") for event in told.events)
