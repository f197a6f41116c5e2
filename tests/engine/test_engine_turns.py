"""Several labs, ordinary jobs and rules with device= on one controller: who runs beside whom."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest

from engine.helpers_engine import QUICK, WAIT_S, Told, command, make_plan, noops, record
from sidewinder.core.campaign import Campaign
from sidewinder.core.instructions import RunExclusive, StartAttempt
from sidewinder.engine import Engine, RuleFiles, shell_task
from sidewinder.engine.session import Session
from sidewinder.errors import ConfigError
from sidewinder.machines import CONTROLLER_GROUP
from sidewinder.model import Device, Failure, FailureClass


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


def span(log):
    """A point that writes when it begins and when it ends."""
    code = (
        "import os, sys, time\n"
        f"fd = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "os.write(fd, b'begin\\n'); time.sleep(0.05); os.write(fd, b'end\\n')\n"
    )
    return command(sys.executable, "-c", code)


def write(log, text):
    with open(log, "a") as file:
        file.write(text)


def test_local_points_of_two_labs_and_ordinary_jobs_take_turns(tmp_path, local):
    log = tmp_path / "spans"
    plans = {}
    for name in ("one", "two"):
        points = [{**span(log), "parameters": {"lab": name, "i": i}} for i in "ab"]
        plans[str(tmp_path / name)] = make_plan(tmp_path / name, points, devices=[local])
    told = Told()
    engine = Engine(told)
    for root, plan in plans.items():
        engine.add_lab(root, plan)
    for number in range(2):
        engine.submit_exclusive(("job", number), lambda: write(log, "begin\nend\n"))
    engine.submit([(root, run_id) for root, plan in plans.items() for run_id in plan.points])
    told.wait(6)
    assert engine.shutdown(20)
    assert set(told.done.values()) == {"ok"}
    assert log.read_text().split() == ["begin", "end"] * 6


def test_same_run_id_in_two_labs_is_two_points(tmp_path):
    plans = {str(tmp_path / name): make_plan(tmp_path / name, noops(3)) for name in ("one", "two")}
    assert len({run_id for plan in plans.values() for run_id in plan.points}) == 3
    told = Told()
    engine = Engine(told)
    for root, plan in plans.items():
        engine.add_lab(root, plan)
    engine.submit([(root, run_id) for root, plan in plans.items() for run_id in plan.points])
    told.wait(6)
    assert engine.shutdown(20)
    for root, plan in plans.items():
        assert all(record(root, plan, run_id)["campaign"] == plan.campaign for run_id in plan.points)


def test_a_lab_that_shares_the_controller_marks_each_overlap(tmp_path, local):
    begun, go = tmp_path / "begun", tmp_path / "go"
    code = (
        "import pathlib, sys, time\nbegun, go = map(pathlib.Path, sys.argv[1:])\nbegun.touch()\n"
        "while not go.exists(): time.sleep(0.01)"
    )
    root = tmp_path / "runs"
    point = command(sys.executable, "-c", code, str(begun), str(go))
    plan = make_plan(root, [point], devices=[local], policy=replace(QUICK, controller_shares_local=True))
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    job_ran = threading.Event()
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda _: begun.exists(), "the point runs")
    engine.submit_exclusive("job", job_ran.set)
    assert job_ran.wait(WAIT_S)
    go.touch()
    told.wait(2)
    assert engine.shutdown(20)
    (run_id,) = plan.points
    assert any("ordinary job job" in warning for warning in record(root, plan, run_id)["warnings"])


def test_no_local_device_means_no_waiting_for_turns(tmp_path):
    told = Told()
    engine = Engine(told)
    both = threading.Barrier(2, timeout=WAIT_S)
    engine.submit_exclusive("a", both.wait)
    engine.submit_exclusive("b", both.wait)
    told.wait(2)
    assert engine.shutdown(20)


def test_how_ordinary_jobs_fail(tmp_path):
    told = Told()
    engine = Engine(told)
    engine.submit_exclusive("raises", lambda: 1 / 0)
    engine.submit_exclusive("says", lambda: Failure(FailureClass.MEASUREMENT, "exit code 3"))
    engine.submit_exclusive("stopped", lambda: Failure(FailureClass.CANCELLED, "stopped"))
    told.wait(3)
    assert engine.shutdown(20)
    assert told.done == {"raises": "failed", "says": "failed", "stopped": "cancelled"}
    assert "ZeroDivisionError" in told.failures["raises"].message


def test_at_most_one_turn_of_the_controller_is_out(tmp_path, local, monkeypatch):
    """Seen from the core: between a start and its end nobody else of the controller starts."""
    running, seen, turns = set(), [], []
    handle = Campaign.handle

    def watched(self, event, now_s):
        out = handle(self, event, now_s)
        for item in self.done:
            running.discard(item)
        for instruction in out:
            if isinstance(instruction, StartAttempt | RunExclusive):
                work = instruction.attempt.work_id if isinstance(instruction, StartAttempt) else instruction.work_id
                running.add(work)
                turns.append(work.partition(":")[0])
                seen.append(len(running))
        self.check_invariants()
        return out

    monkeypatch.setattr(Campaign, "handle", watched)
    root = tmp_path / "runs"
    plan = make_plan(root, noops(4), devices=[local])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit_exclusive("job", lambda: None)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.wait(5)
    assert engine.shutdown(20)
    assert set(seen) == {1}
    assert sorted(turns) == ["0", "0", "0", "0", "turn"]


def test_what_is_this_machine_is_one_group_whatever_it_is_called(tmp_path):
    devices = [
        Device("local", "local", resource_group="laptop", group_max_concurrency=1),
        Device("pod", "kubernetes", resource_group="laptop"),
        Device("other", "local", max_concurrency=2),
        Device("pi5", "ssh", settings={"host": "pi5.lan"}),
        Device("pi5-again", "ssh", settings={"host": "pi5.lan"}),
        Device("pi5-gpu", "ssh", settings={"host": "pi5.lan"}, lock="gpu"),
        Device("box", "ssh", settings={"host": "box.lan"}, resource_group="rack"),
    ]
    plan = make_plan(tmp_path, noops(1), devices=devices)
    session = Session(3, str(tmp_path), plan)
    groups = {device.id: device.resource_group for device in session.core_devices()}
    session.release()
    assert {groups[f"3:{name}"] for name in ("local", "pod", "other")} == {CONTROLLER_GROUP}
    assert groups["3:pi5"] == groups["3:pi5-again"] != groups["3:pi5-gpu"]
    assert groups["3:box"] == "rack"


def test_after_a_stop_no_ordinary_job_starts(tmp_path):
    told = Told()
    engine = Engine(told)
    holding, ran = threading.Event(), []
    engine.submit_exclusive("first", lambda: holding.wait(WAIT_S))
    engine.cancel()
    engine.submit_exclusive("second", lambda: ran.append(1))
    told.wait(1)
    holding.set()
    told.wait(2)
    assert engine.shutdown(20)
    assert (told.done["second"], ran) == ("cancelled", [])


# -- rules with device=


def run_rule(tmp_path, local, shell, outputs=(), device="local"):
    root, work = tmp_path / "runs", tmp_path / "work"
    work.mkdir(exist_ok=True)
    far = Device("pi5", "ssh", settings={"host": "pi5.lan"})
    plan = make_plan(root, noops(1), devices=[local, far])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    files = RuleFiles(str(work), outputs=tuple(outputs))
    engine.submit_rule("rule", device, str(root), shell_task(shell, cwd=str(work)), files)
    told.wait(1)
    assert engine.shutdown(20)
    return told


def test_a_rule_runs_in_place_and_its_outputs_must_exist(tmp_path, local):
    told = run_rule(tmp_path, local, "echo hello > out.txt", ["out.txt"])
    assert told.done == {"rule": "ok"}
    assert (tmp_path / "work" / "out.txt").read_text() == "hello\n"
    told = run_rule(tmp_path, local, "true", ["missing.txt"])
    assert told.done == {"rule": "failed"}
    assert "missing.txt" in told.failures["rule"].message


def test_a_rule_fails_as_its_shell_does(tmp_path, local):
    told = run_rule(tmp_path, local, "echo because >&2; false | true; echo not reached >&2")
    assert told.done == {"rule": "failed"}
    assert "because" in told.failures["rule"].message
    assert "not reached" not in told.failures["rule"].message


def test_a_rule_is_never_answered_by_an_earlier_run(tmp_path, local):
    run_rule(tmp_path, local, "echo x >> count")
    run_rule(tmp_path, local, "echo x >> count")
    assert (tmp_path / "work" / "count").read_text() == "x\nx\n"


def test_a_rule_for_another_machine_says_so(tmp_path, local):
    told = run_rule(tmp_path, local, "true", device="pi5")
    assert told.done == {"rule": "hole"}
    assert "pi5" in told.failures["rule"].message
    with pytest.raises(ConfigError, match="known: local, pi5"):
        run_rule(tmp_path, local, "true", device="pi6")
