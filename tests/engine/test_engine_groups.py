"""Turns of a group in the engine: who is called first, and whose turn is kept because its run may be alive."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine.helpers_engine import Told, make_plan, run
from engine.helpers_scripted import NOTHING, scripted
from sidewinder.engine import Engine
from sidewinder.errors import ConfigError
from sidewinder.model import Device, FailureClass, RawResult

DEVICES = [Device(name, "ssh", resource_group="board", max_transport_failures=9) for name in ("a", "b")]


@pytest.fixture
def machines(monkeypatch):
    return scripted(monkeypatch, "a", "b")


def plan_of(root, *devices):
    points = [{"backend": "command", "command": ("true",), "device": name} for name in devices]
    return make_plan(root, points, devices=DEVICES)


def events(root):
    path = root / "retries.jsonl"
    return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []


def test_a_start_that_never_left_keeps_no_turn(tmp_path, machines):
    def connect():
        if machines["a"].asked["connect"] == 2:  # the first is the call; gone when the point starts
            machines["a"].refuse.append("connect")

    root = tmp_path / "runs"
    machines["a"].on["connect"] = connect
    assert set(run(root, plan_of(root, "a", "b")).done.values()) == {"ok"}
    assert events(root) == ["transport_failure", "repeat"]


def test_a_start_whose_answer_was_lost_keeps_its_turn(tmp_path, machines):
    root = tmp_path / "runs"
    machines["a"].lose = ["start"]
    told = run(root, plan_of(root, "a", "b"))
    assert set(told.done.values()) == {"ok"}
    assert events(root) == ["straggler", "transport_failure", "reattached"]
    said = [event["message"] for event in told.events if event["kind"] == "warning"]
    assert any("may still run: its turn in the group is kept" in message for message in said), said


def test_a_member_that_does_not_answer_is_called_and_started_nothing(tmp_path, machines):
    root = tmp_path / "runs"
    machines["a"].refuse = ["connect"]
    assert set(run(root, plan_of(root, "a", "b")).done.values()) == {"ok"}
    assert events(root) == ["unanswered"]


@pytest.mark.parametrize("group", [None, "board"])
def test_what_is_missing_here_is_each_points_own_failure_in_a_group_too(tmp_path, machines, group):
    def connect():
        raise ConfigError("this key file is not there", key="devices.a.identity_file")

    root = tmp_path / "runs"
    machines["a"].on["connect"] = connect
    points = [{"backend": "command", "command": ("true",), "device": name} for name in ("a", "b")]
    plan = make_plan(root, points, devices=[replace(device, resource_group=group) for device in DEVICES])
    told = run(root, plan)
    ends = {plan.points[run_id].device: (told.done[key], told.failures[key]) for key in told.done for run_id in key[1:]}
    assert ends["b"] == ("ok", None)
    assert (ends["a"][0], ends["a"][1].failure_class) == ("failed", FailureClass.CONFIG)


def test_after_a_kill_no_other_member_starts_beside_what_may_run(tmp_path, machines):
    """The point of the run that was left is not even handed over again, at first."""
    root = tmp_path / "runs"
    plan = plan_of(root, "a", "b")
    ids = {point.device: run_id for run_id, point in plan.points.items()}
    machines["a"].hold.add(ids["a"])
    machines["a"].refuse = ["fetch"] * 1000
    told = Told()
    first = Engine(told)
    first.add_lab(str(root), plan)
    first.submit([(str(root), ids["a"])])
    told.until(lambda _: machines["a"].ran, "it runs")
    first.shutdown(0.0)
    machines["a"].refuse = []
    order = []
    for name in ids:
        machines[name].on["ack"] = lambda run_id, n, name=name: order.append(f"{name} is over")
        machines[name].on["start"] = lambda run_id, n, name=name: order.append(f"{name} starts")
    told = Told()
    second = Engine(told)
    second.add_lab(str(root), plan)
    second.submit([(str(root), ids["b"])])
    told.until(lambda told: "straggler" in events(root), "what may run is known")
    told.until(lambda told: machines["b"].asked["connect"], "b is called")
    assert machines["b"].ran == []
    machines["a"].results[ids["a"], 1] = RawResult("done", 0, 0.1, NOTHING, NOTHING)
    second.submit([(str(root), ids["a"])])
    told.wait(2)
    assert second.shutdown(20)
    assert set(told.done.values()) == {"ok"}
    assert order == ["a is over", "b starts", "b is over"]
