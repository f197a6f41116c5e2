"""A run that its machine slept through, or whose clock was set meanwhile: measured again, written down, never a result.

The agent is the real one; its clocks are set at the seam that ``helpers_clocks`` explains.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.helpers_clocks import interpreter, under_faketime
from engine.helpers_engine import Told, command, make_plan, only, record, run
from sidewinder import report
from sidewinder.core.policy import MAX_PREEMPTIONS
from sidewinder.engine import Engine
from sidewinder.engine.rulefiles import RuleFiles
from sidewinder.engine.rulejob import shell_task
from sidewinder.model import Device


@pytest.fixture
def clocks(tmp_path: Path) -> Path:
    return tmp_path / "clocks"


@pytest.fixture
def local(tmp_path: Path, clocks: Path) -> Device:
    return Device("local", "local", python=interpreter(clocks), settings={"state_dir": str(tmp_path / "agent")})


def once(clocks: Path, clock: str, by_s: float) -> str:
    """A run in which this happens to the clock the first time, and which then prints its figure and ends well."""
    return f"test -e {clocks}/{clock} || echo {by_s} > {clocks}/{clock}; echo value 7"


def measured(script: str) -> dict:
    return command("/bin/sh", "-c", script, metrics={"value": r"value (\d+)"})


@pytest.mark.parametrize(
    ("clock", "by_s", "figure", "sentence"),
    [
        ("slept", 30.0, "suspended_s", "the machine slept for 30.0 s during the run"),
        ("wall", 3600.0, "clock_step_s", "the machine's clock was set by +3600.0"),
        ("wall", -3600.0, "clock_step_s", "the machine's clock was set by -"),
    ],
)
def test_it_is_measured_again_and_the_record_says_why(tmp_path, local, clocks, clock, by_s, figure, sentence):
    root = tmp_path / "runs"
    plan = make_plan(root, [measured(once(clocks, clock, by_s))], devices=[local])
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    written = record(root, plan, only(plan))
    first, second = written["attempts"]
    assert (first["outcome"], first["class"]) == ("lost", "preempted")
    assert sentence in first["error"]
    assert first["evidence"][figure] == pytest.approx(by_s, abs=0.5)
    assert (second["n"], second["outcome"]) == (2, "ok")
    assert written["metrics"]["value"] == 7
    assert any(sentence in warning for warning in written["warnings"])
    assert abs(written["conditions"]["stamps"][figure]) < 0.1  # of the attempt that counts
    assert "retry" in told.kinds()


def test_the_wall_clock_of_the_c_library_is_set_during_a_run(tmp_path, clocks):
    """The same without a word of Python in between: the agent and its runs under libfaketime, monotonic clocks as they
    are."""
    python = under_faketime(clocks)
    if python is None:
        pytest.skip("needs libfaketime: apt-get install libfaketime")
    local = Device("local", "local", python=python, settings={"state_dir": str(tmp_path / "agent")})
    root = tmp_path / "runs"
    script = f"grep -q 3600 {clocks}/faketime || echo +3600 > {clocks}/faketime; echo value 7"
    plan = make_plan(root, [measured(script)], devices=[local])
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    first, second = record(root, plan, only(plan))["attempts"]
    assert (first["class"], second["outcome"]) == ("preempted", "ok")
    assert first["evidence"]["clock_step_s"] == pytest.approx(3600, abs=1)
    assert first["evidence"]["suspended_s"] < 0.1


def test_one_that_never_has_its_peace_is_a_hole_that_says_so(tmp_path, local, clocks):
    root = tmp_path / "runs"
    script = (
        f"cd {clocks}; s=$(cat slept 2>/dev/null || echo 0); echo $((s + 20)) > slept; echo x >> runs; echo value 7"
    )
    plan = make_plan(root, [measured(script)], devices=[local])
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    assert len((clocks / "runs").read_text().split()) == MAX_PREEMPTIONS + 1
    failure = record(root, plan, only(plan))["failure"]
    assert failure["class"] == "not_attempted"
    assert failure["evidence"]["cause"] == "preempted"
    assert "the machine slept for 20.0 s during the run" in failure["message"]
    report.build(str(root), plan)
    assert "the machine slept for 20.0 s" in (root / "summary" / "report.html").read_text()


def test_a_point_that_slept_is_told_of_in_the_report(tmp_path, local, clocks):
    root = tmp_path / "runs"
    plan = make_plan(root, [measured(once(clocks, "slept", 30.0))], devices=[local])
    run(root, plan)
    report.build(str(root), plan)
    assert "the machine slept for 30.0 s during the run" in (root / "summary" / "report.html").read_text()


def test_a_nap_of_a_rule_with_device_spoils_nothing(tmp_path, local, clocks):
    root = tmp_path / "runs"
    plan = make_plan(root, [], devices=[local])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    task = shell_task(f"echo 30 > {clocks}/slept; echo x >> {clocks}/runs", cwd=str(tmp_path))
    engine.submit_rule("rule", "local", str(root), task, RuleFiles(str(tmp_path)))
    try:
        told.wait(1)
    finally:
        assert engine.shutdown(10)
    assert told.done == {"rule": "ok"}
    assert (clocks / "runs").read_text() == "x\n"  # once
