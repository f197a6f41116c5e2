"""Points that end inside the engine: the whole path but the device."""

from __future__ import annotations

import json
import os

from engine.helpers_engine import Told, make_plan, noops, record, run
from sidewinder.engine import Engine
from sidewinder.files import shards
from sidewinder.ids import shard_id
from sidewinder.model import Policy


def test_every_point_ends_once_with_a_record(tmp_path):
    plan = make_plan(tmp_path, noops(20))
    told = run(tmp_path, plan)
    assert set(told.done.values()) == {"ok"}
    for run_id in plan.points:
        written = record(tmp_path, plan, run_id)
        assert (written["status"], written["run_id"], written["campaign"]) == ("ok", run_id, plan.campaign)
        assert written["metrics"] == {}
    assert told.threads == {"sidewinder-engine"}


def test_order_and_predecessor_are_in_the_record(tmp_path):
    plan = make_plan(tmp_path, noops(5), policy=Policy(order_seed=7))
    run(tmp_path, plan)
    orders = {run_id: record(tmp_path, plan, run_id)["order"] for run_id in plan.points}
    in_order = sorted(orders, key=lambda run_id: orders[run_id]["position"])
    assert [orders[run_id].get("predecessor") for run_id in in_order] == [None, *in_order[:-1]]
    assert {(o["seed"], o["by"]) for o in orders.values()} == {(7, "interleaved")}


def test_what_is_done_is_reported_and_not_measured_unless_forced(tmp_path):
    plan = make_plan(tmp_path, noops(2))
    first, _ = plan.points
    run(tmp_path, plan, [first])
    before = record(tmp_path, plan, first)
    told = run(tmp_path, plan)
    assert [event.get("already", False) for event in told.events if event["kind"] == "finished"] == [True, False]
    assert record(tmp_path, plan, first) == before
    told = run(tmp_path, plan, forced=[first])
    assert told.started == [((str(tmp_path), first), (first, 1))]
    assert len(os.listdir(tmp_path / "superseded" / "local")) == 1


def test_displays_are_told(tmp_path):
    plan = make_plan(tmp_path, noops(1))
    told = run(tmp_path, plan)
    assert told.kinds() == ["plan", "started", "finished"]
    assert told.events[0]["devices"] == {"local": {"planned": 1, "done": 0, "open": 1}}
    assert all(event["v"] == 1 and event["at_utc"].endswith("+00:00") for event in told.events)
    json.dumps(told.events)


def test_a_shard_is_reported_once_and_has_a_manifest(tmp_path):
    plan = make_plan(tmp_path, noops(7))
    name = shard_id(plan.points)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(tmp_path), plan)
    engine.submit_shard(str(tmp_path), name, list(plan.points))
    told.wait(1)
    assert engine.shutdown(10)
    assert told.done == {(str(tmp_path), name): "ok"}
    manifest = shards.read(str(tmp_path / "shards" / "local" / f"{name}.json"))
    assert {run_id: entry.status for run_id, entry in manifest.items()} == dict.fromkeys(plan.points, "ok")
    again = Told()
    engine = Engine(again)
    engine.add_lab(str(tmp_path), plan)
    engine.submit_shard(str(tmp_path), name, list(plan.points))
    again.wait(1)
    assert engine.shutdown(10)
    assert again.started == []
