"""Interrupted: Ctrl-C, SIGTERM, `kill -9`, a second controller; then the same command again."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plugin.helpers_plugin import LabFolder, Snakemake, Started, open_points


def until(what: Callable[[], bool], started: Started, timeout_s: float = 60.0) -> None:
    """Poll for a state that the run must come to; its time is no subject of the test."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, f"it never came to that:\n{started.text()}"
        assert not started.ended.is_set(), f"Snakemake ended before:\n{started.text()}"
        time.sleep(0.02)


def measuring(folder: Path) -> list[int]:
    """Processes that still measure for this lab."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if str(folder / "measure.py") in line and "-E" in line:
                found.append(int(pid))
    return found


@pytest.fixture
def held(snakemake: Snakemake, tmp_path: Path) -> tuple[LabFolder, Started]:
    """A sweep of three points on one device: the first is done, the second is being measured and waits for us."""
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"], threads=[1, 2, 3], policy={"order": {"by": "config"}}))
    (lab.folder / "HOLD-pi5-2").touch()
    started = lab.start()
    until(lambda: lab.starts[-1:] == ["pi5-2"], started)
    return lab, started


def test_ctrl_c_stops_what_runs_and_the_rest_is_open(held: tuple[LabFolder, Started]) -> None:
    lab, started = held
    started.kill(signal.SIGINT)
    assert started.wait().rc == 1
    assert measuring(lab.folder) == []
    (lab.folder / "HOLD-pi5-2").unlink()
    assert open_points(lab.run("-n").text) == ["pi5-2", "pi5-3"]
    assert lab.run().rc == 0
    assert lab.starts == ["pi5-1", "pi5-2", "pi5-2", "pi5-3"]


def test_sigterm_lets_the_running_point_finish_and_starts_no_other(held: tuple[LabFolder, Started]) -> None:
    lab, started = held
    started.kill(signal.SIGTERM)
    until(lambda: "SIGTERM: running work may finish" in started.text(), started)
    (lab.folder / "HOLD-pi5-2").unlink()
    ended = started.wait()
    assert ended.rc == 1
    assert "stopped by SIGTERM" in ended.text
    assert "Error in rule" not in ended.text
    assert lab.starts == ["pi5-1", "pi5-2"]
    assert open_points(lab.run("-n").text) == ["pi5-3"]


def test_kill_9_and_the_same_command_again(held: tuple[LabFolder, Started]) -> None:
    lab, started = held
    started.kill(signal.SIGKILL)
    started.wait()
    again = lab.start()
    until(lambda: "Execute 2 jobs" in again.text(), again)
    (lab.folder / "HOLD-pi5-2").unlink()
    ended = again.wait()
    assert ended.rc == 0, ended.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2", "pi5-3"], "the running attempt is adopted, not measured again"
    assert "Nothing to be done" in lab.run().text


def test_a_record_that_is_there_is_not_measured_again_after_a_crash(snakemake: Snakemake, tmp_path: Path) -> None:
    """Killed between the record and Snakemake's own bookkeeping: Snakemake "forces" the job, its record is ok."""
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"]))
    assert lab.run().rc == 0
    record = str(lab.record("pi5-1").relative_to(lab.folder))
    marker = lab.folder / ".snakemake/incomplete" / base64.b64encode(record.encode()).decode()
    marker.touch()
    listed = lab.run("-n").text
    assert open_points(listed) == ["pi5-1"], "Snakemake wants it again"
    assert lab.run().rc == 0
    assert sorted(lab.starts) == ["pi5-1", "pi5-2"]
    assert open_points(lab.run("-n").text) == []
