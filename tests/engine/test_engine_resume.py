"""kill -9 of the controller, then the same command again: nothing that ran runs twice, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.helpers_engine import WAIT_S, command, make_plan, only, record
from sidewinder.model import Device

SCRIPT = Path(__file__).with_name("controller_script.py")


def until(condition, what):
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)


class Lab:
    """Points that leave a line each time they run, and that wait for `go` when asked to."""

    def __init__(self, tmp_path, count=1, *, wait=False):
        self.root, self.log, self.go = tmp_path / "runs", tmp_path / "ran.log", tmp_path / "go"
        code = (
            "import os, sys, time\n"
            f"fd = os.open({str(self.log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
            "os.write(fd, (sys.argv[1] + '\\n').encode())\n"
            f"while {wait} and not os.path.exists({str(self.go)!r}): time.sleep(0.01)\n"
            "print('n=1')\n"
        )
        device = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
        points = [
            command(sys.executable, "-c", code, "{i}", parameters={"i": i}, metrics={"n": r"n=(\d)"})
            for i in range(count)
        ]
        self.plan = make_plan(self.root, points, devices=[device])

    def controller(self):
        return subprocess.Popen([sys.executable, str(SCRIPT), str(self.root)], stdout=subprocess.PIPE)

    def again(self):
        with self.controller() as process:
            out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        return json.loads(out)

    def ran(self):
        return sorted(self.log.read_text().split()) if self.log.exists() else []

    def journal(self):
        path = self.root / "journal.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_killed_while_a_point_runs_then_it_is_taken_over(tmp_path):
    lab = Lab(tmp_path, wait=True)
    process = lab.controller()
    until(lambda: lab.ran() == ["0"], "the point runs")
    kill(process)
    lab.go.touch()
    assert lab.again() == {only(lab.plan): "ok"}
    assert lab.ran() == ["0"]
    written = record(lab.root, lab.plan, only(lab.plan))
    assert [a["n"] for a in written["attempts"]] == [1]
    assert any("taken over" in warning for warning in written["warnings"])


def test_a_repeat_before_the_kill_is_named_in_the_record_after_it(tmp_path):
    """The soak found it: the ledger knew of the repeat, the record that the next controller wrote did not."""
    lab = Lab(tmp_path, wait=True)
    ledger = lab.root / "retries.jsonl"
    first = lab.controller()
    until(lambda: lab.ran() == ["0"], "the point runs")
    (proc,) = (tmp_path / "agent/runs").glob("*/*.1/proc.json")
    os.kill(json.loads(proc.read_text())["runner"], signal.SIGKILL)
    until(lambda: lab.ran() == ["0", "0"], "it runs again")
    until(lambda: '"repeat"' in ledger.read_text(), "the ledger says so")
    first.kill()
    first.communicate()
    lab.go.touch()
    assert lab.again() == {only(lab.plan): "ok"}
    written = record(lab.root, lab.plan, only(lab.plan))
    assert lab.ran() == ["0", "0"], "the second attempt was taken over"
    assert [
        word for word in ("attempt 1 failed on the way", "taken over") if word in " ".join(written["warnings"])
    ] == [
        "attempt 1 failed on the way",
        "taken over",
    ]


def test_stopped_while_the_run_ends_then_killed_and_the_result_is_fetched(tmp_path):
    lab = Lab(tmp_path, wait=True)
    process = lab.controller()
    until(lambda: lab.ran() == ["0"], "the point runs")
    process.send_signal(signal.SIGSTOP)
    lab.go.touch()
    until(lambda: any((tmp_path / "agent").rglob("result*")), "the result lies on the device")
    kill(process)
    assert lab.again() == {only(lab.plan): "ok"}
    assert lab.ran() == ["0"]


@pytest.mark.parametrize("lines", [1, 2, 3, 5])
def test_killed_after_so_many_journal_lines(tmp_path, lines):
    lab = Lab(tmp_path, 3)
    process = lab.controller()
    until(lambda: lab.journal() >= lines or process.poll() is not None, f"{lines} journal lines")
    kill(process)
    assert set(lab.again().values()) == {"ok"}
    assert lab.ran() == ["0", "1", "2"]
    assert all(record(lab.root, lab.plan, run_id)["status"] == "ok" for run_id in lab.plan.points)


def test_what_was_finished_is_not_touched_again(tmp_path):
    lab = Lab(tmp_path, 2)
    lab.again()

    def stamps():
        return {path: path.stat().st_mtime_ns for path in (lab.root / "records").rglob("*.json")}

    before = stamps()
    assert set(lab.again().values()) == {"ok"}
    assert (stamps(), lab.ran()) == (before, ["0", "1"])
