"""Points of backend `command` through the engine, the real agent and this machine."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from engine.helpers_engine import QUICK, command, make_plan, only, record, run
from sidewinder.model import Device


@pytest.fixture
def local(tmp_path):
    """This machine, with the agent's state kept apart from everybody else's."""
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def python(code, **more):
    return command(sys.executable, "-c", code, **more)


def test_a_point_becomes_a_record(root, local):
    plan = make_plan(root, [python("print('n=', 42)", metrics={"n": r"n= (\d+)"})], devices=[local])
    told = run(root, plan)
    written = record(root, plan, only(plan))
    assert told.done == {(str(root), only(plan)): "ok"}
    assert (written["status"], written["metrics"]["n"]) == ("ok", 42)
    assert written["device"]["device_id"] == "local"
    assert written["device"]["logical_cores"] >= 1
    assert [(a["n"], a["outcome"]) for a in written["attempts"]] == [(1, "ok")]
    assert written["attempts"][0]["start_utc"] <= written["attempts"][0]["end_utc"]
    assert written["raw"]["stdout"] == "n= 42\n"
    assert abs(written["clock"]["offset_s"]) < 1
    assert told.started[0][1] == (only(plan), 1)


def test_a_failing_command_is_a_failed_result_and_never_retried(root, local):
    plan = make_plan(root, [python("import sys; sys.exit('no such model')")], devices=[local])
    told = run(root, plan)
    written = record(root, plan, only(plan))
    assert list(told.done.values()) == ["failed"]
    assert (written["status"], written["failure"]["class"]) == ("failed", "measurement")
    assert written["error"] == "exit status 1: no such model"
    assert len(told.started) == 1


def test_timeout_and_missing_program_and_unreadable_output(root, local):
    plan = make_plan(
        root,
        [
            python("import time; time.sleep(60)", extra={"timeout_s": 0.3}),
            command("/nowhere/program"),
            python("print('{\"a\": 1, ')", metrics="json"),
        ],
        devices=[local],
    )
    told = run(root, plan)
    classes = {run_id: record(root, plan, run_id)["failure"]["class"] for run_id in plan.points}
    assert list(classes.values()) == ["measurement", "measurement", "parse"]
    assert set(told.done.values()) == {"failed"}
    timeout, missing, unread = (record(root, plan, run_id) for run_id in plan.points)
    assert timeout["raw"]["state"] == "timeout"
    assert "/nowhere/program" in missing["error"]
    assert unread["raw"]["stdout"] == '{"a": 1, \n'


def test_huge_output_and_bytes_that_are_no_text(root, local):
    code = "import os\nos.write(1, b'\\xff\\xfe' + b'x' * 3_000_000 + b'\\nn=5\\n')"
    plan = make_plan(root, [python(code, metrics={"n": r"n=(\d+)"})], devices=[local])
    run(root, plan)
    written = record(root, plan, only(plan))
    assert written["metrics"]["n"] == 5
    assert written["raw"]["stdout_bytes"] == 3_000_007
    assert any("not searched" in warning for warning in written["warnings"])


def test_missing_transports_are_holes_that_name_them_and_others_go_on(root, local):
    far = Device("pi5", "ssh", settings={"host": "pi5.lan"})
    plan = make_plan(root, [command("true"), command("true", device="pi5")], devices=[local, far])
    told = run(root, plan)
    here, there = plan.points
    assert told.done == {(str(root), here): "ok", (str(root), there): "hole"}
    written = record(root, plan, there)
    assert written["failure"]["class"] == "not_attempted"
    assert "ssh" in written["error"]


def test_a_local_device_that_cannot_run_the_agent_is_a_hole(root, tmp_path):
    broken = Device("local", "local", python="/nowhere/python")
    plan = make_plan(root, [command("true"), command("true", parameters={"i": 1})], devices=[broken])
    told = run(root, plan)
    assert list(told.done.values()) == ["hole", "hole"]
    assert "/nowhere/python" in record(root, plan, only_first(plan))["error"]


def only_first(plan):
    return next(iter(plan.points))


def test_environment_and_secrets_reach_the_program_and_secrets_no_file(root, local, monkeypatch):
    monkeypatch.setenv("LAB_TOKEN", "s3cr3t-value")
    device = replace(local, env={"A": "1"}, secrets=("LAB_TOKEN",))
    code = "import os; print('len', len(os.environ['LAB_TOKEN']), 'a', os.environ['A'])"
    plan = make_plan(root, [python(code, metrics={"n": r"len (\d+)", "a": r"a (\d+)"})], devices=[device])
    run(root, plan)
    assert record(root, plan, only(plan))["metrics"].items() >= {"n": 12, "a": 1}.items()
    for path in root.rglob("*"):
        assert not path.is_file() or b"s3cr3t-value" not in path.read_bytes(), path


def test_a_missing_secret_is_a_config_failure_by_name(root, local):
    plan = make_plan(root, [command("true")], devices=[replace(local, secrets=("NOT_SET_ANYWHERE",))])
    run(root, plan)
    written = record(root, plan, only(plan))
    assert written["failure"]["class"] == "config"
    assert "NOT_SET_ANYWHERE" in written["error"]


def test_two_slots_measure_side_by_side(root, local):
    # each waits for the other's file: with one slot the first would run into its time-out
    code = (
        "import sys, time, pathlib\nme, other = map(pathlib.Path, sys.argv[1:])\nme.touch()\n"
        "while not other.exists(): time.sleep(0.01)"
    )
    a, b = str(root.parent / "a"), str(root.parent / "b")
    points = [command(sys.executable, "-c", code, *pair, extra={"timeout_s": 20}) for pair in ((a, b), (b, a))]
    plan = make_plan(root, points, devices=[replace(local, max_concurrency=2)], policy=QUICK)
    assert set(run(root, plan).done.values()) == {"ok"}
