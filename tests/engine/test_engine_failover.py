"""Failover as the lab declares it, on scripted machines: records, identity, the ledger, the next invocation (M-118)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.helpers_engine import QUICK, Told, command, make_plan, noops, only, record, run
from engine.helpers_scripted import scripted
from sidewinder.engine import Engine, RuleFiles, run_points, shell_task
from sidewinder.files import schedule, summary
from sidewinder.files.records import read as read_record
from sidewinder.model import Device, Model, Policy, RetryPolicy

PI = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=0.02, give_up_after_s=0.0, failover_to=("spare",))
SPARE = Device("spare", "ssh", env={"WHO": "spare"})
LAB = (PI, SPARE)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def machines(monkeypatch):
    return scripted(monkeypatch, "pi", "spare", "third")


def points(count, **more):
    return [command("true", parameters={"i": i}, **{"device": "pi", **more}) for i in range(count)]


def records_of(root, device):
    return [json.loads(path.read_text()) for path in sorted(Path(root, "records", device).glob("*.json"))]


def ledger(root, event):
    lines = [json.loads(line) for line in (root / "retries.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_the_points_of_a_dead_device_are_measured_elsewhere_and_stay_open(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(3), devices=LAB)
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    assert len(told.done) == 3, "nobody is told of a key that was never handed over"
    copies = {copy["run_id"]: copy for copy in records_of(root, "spare")}
    for run_id in plan.points:
        original = record(root, plan, run_id)
        assert (original["status"], original["failure"]["class"]) == ("failed", "not_attempted")
        copy = copies.pop(original["moved_to"])
        assert copy["status"] == "ok"
        assert copy["identity"]["failover_from"] == "pi"
        assert copy["identity"]["device"] == copy["device"]["device_id"] == "spare"
        assert copy["identity"]["env"] == {"WHO": "spare"}
        assert "failover-from:pi" in copy["tags"]
        assert copy["clock"] == {"offset_s": 0.001, "bound_s": 0.0001}
        assert any("instead of pi" in warning for warning in copy["warnings"])
        assert read_record(str(Path(root, "records", "spare", f"{copy['run_id']}.json"))).run_id == copy["run_id"]
    assert copies == {}
    assert summary.summarise(str(root), plan).total.open == 3
    moved = [event for event in told.events if event["kind"] == "moved"]
    assert len(moved) == 3
    assert all((event["device"], event["to"]) == ("pi", "spare") and event["label"] for event in moved)
    lines = ledger(root, "failover")
    assert {line["moved_run_id"] for line in lines} == {copy["run_id"] for copy in records_of(root, "spare")}
    assert lines[0].keys() >= {"run_id", "moved_run_id", "from_device", "to_device", "reason", "note", "utc"}
    assert (lines[0]["from_device"], lines[0]["to_device"]) == ("pi", "spare")
    told = schedule.read(str(root))
    assert (told["moved"], told["by_device"]["spare"]["ok"], told["by_device"]["pi"]["failed"]) == (3, 3, 3)


def test_a_moved_point_never_equals_the_stand_ins_own(root, machines):
    """The same measurement is planned on both devices: the copy is a third one."""
    machines["pi"].down = True
    plan = make_plan(root, [*points(1), *points(1, device="spare")], devices=LAB)
    run(root, plan)
    assert len({run_id for run_id, _ in machines["spare"].ran}) == 2
    assert [one["order"]["position"] for one in records_of(root, "spare")].count(0) == 1


def test_the_stand_in_is_looked_at_before_anything_is_sent_to_it(root, machines):
    machines["pi"].down = True
    asked = []
    for op in ("clock", "probe", "start"):
        machines["spare"].on[op] = lambda *_, op=op: asked.append(op)
    run(root, make_plan(root, points(2), devices=LAB))
    assert asked.index("clock") < asked.index("probe") < asked.index("start")


def test_a_stand_in_that_is_down_is_no_help_and_the_next_one_is(root, machines):
    machines["pi"].down = machines["spare"].down = True
    devices = [replace(PI, failover_to=("spare", "third")), SPARE, Device("third", "ssh")]
    plan = make_plan(root, points(2), devices=devices)
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    assert machines["spare"].ran == []
    assert len(machines["third"].ran) == 2
    assert ledger(root, "move_refused")[0]["to_device"] == "spare"


def test_the_next_invocation_tries_the_own_device_first_and_measures_no_copy_twice(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(2), devices=LAB)
    run(root, plan)
    ran, asked = list(machines["spare"].ran), machines["pi"].asked["connect"]
    told = run(root, plan)  # pi is asked again, and is down still
    assert set(told.done.values()) == {"hole"}
    assert machines["spare"].ran == ran, "measured there already"
    assert machines["pi"].asked["connect"] > asked
    assert all("moved_to" in record(root, plan, run_id) for run_id in plan.points)
    machines["pi"].down = False
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    assert machines["spare"].ran == ran
    assert all("moved_to" not in record(root, plan, run_id) for run_id in plan.points)
    assert summary.summarise(str(root), plan).is_complete


def test_a_copy_whose_controller_was_killed_is_adopted_by_the_next(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(1), devices=LAB)
    machines["spare"].on["wait"] = lambda *_: setattr(machines["spare"], "down", True)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), only(plan))])
    told.until(lambda _: machines["spare"].asked["wait"], "the copy runs")
    engine.cancel(True)
    told.wait(1)
    engine.shutdown(10)
    assert told.done == {(str(root), only(plan)): "hole"}
    machines["spare"].down, machines["spare"].on = False, {}
    run(root, plan)
    assert len(machines["spare"].ran) == 1
    (copy,) = records_of(root, "spare")
    assert copy["status"] == "ok"
    assert any("of an earlier invocation" in warning for warning in copy["warnings"])


def test_the_copy_has_the_stand_ins_path_of_the_model(root, machines):
    machines["pi"].down = True
    model = Model("m", paths={"pi": "/on/pi", "spare": "/on/spare"})
    plan = make_plan(root, points(1, model="m", model_path="/on/pi"), devices=LAB)
    run(root, replace(plan, lab=replace(plan.lab, models={"m": model})))
    (copy,) = records_of(root, "spare")
    assert copy["identity"]["model_path"] == "/on/spare"


def test_a_model_that_the_stand_in_lacks_leaves_a_plain_hole(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(1, model="m", model_path="/on/pi"), devices=LAB)
    plan = replace(plan, lab=replace(plan.lab, models={"m": Model("m", paths={"pi": "x"})}))
    assert set(run(root, plan).done.values()) == {"hole"}
    assert "moved_to" not in record(root, plan, only(plan))
    assert "no path for device spare" in ledger(root, "move_refused")[0]["error"]


def test_one_that_used_up_its_attempts_moves_while_its_device_goes_on(root, machines):
    patient = replace(PI, max_transport_failures=9)
    once = Policy(retry=RetryPolicy(max_attempts=1, backoff_s=0.01, jitter=0.0))
    plan = make_plan(root, points(2), devices=[patient, SPARE], policy=once)
    machines["pi"].refuse.append("start")
    told = run(root, plan)
    assert sorted(told.done.values()) == ["hole", "ok"]
    assert len(records_of(root, "spare")) == 1


def test_a_users_rule_stays_where_it_is(root, machines):
    machines["pi"].unfit = "its disk is full"
    plan = make_plan(root, noops(1), devices=[*LAB, Device("local", "local")])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit_rule("rule-1", "pi", str(root), shell_task("true", cwd=None), RuleFiles("/"))
    told.wait(1)
    assert engine.shutdown(10)
    assert told.done == {"rule-1": "hole"}
    assert machines["spare"].ran == []


def test_a_single_point_moves_as_well(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(2), devices=LAB)
    run_id = next(iter(plan.points))
    outcomes = run_points(str(root), plan, [run_id])
    assert {name: one.outcome for name, one in outcomes.items()} == {run_id: "hole"}
    assert len(records_of(root, "spare")) == 1


def test_a_shard_waits_for_its_moved_points(root, machines):
    machines["pi"].down = True
    plan = make_plan(root, points(2), devices=LAB, policy=replace(QUICK, points_per_job=2))
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit_shard(str(root), "0123456789ab", list(plan.points))
    told.wait(1)
    assert len(records_of(root, "spare")) == 2
    assert engine.shutdown(10)
    assert list(told.done.values()) == ["hole"]
