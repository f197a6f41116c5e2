"""Ctrl-C as a terminal sends it: to the whole group of processes, and perhaps again; a run that will not go at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.helpers_badluck import running, until
from plugin.helpers_plugin import OURS, REFERENCE, LabFolder, Snakemake, Started, open_points


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> LabFolder:
    """Three points on one device, in order; the second waits for us."""
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"], threads=[1, 2, 3], policy={"order": {"by": "config"}}))
    (lab.folder / "HOLD-pi5-2").touch()
    return lab


def held(lab: LabFolder, executor: Sequence[str] = OURS) -> Started:
    started = lab.start(executor=executor)
    until(lambda: "pi5-2" in lab.starts or started.ended.is_set(), "the second point runs")
    assert not started.ended.is_set(), started.text()
    return started


def nothing_runs(lab: LabFolder) -> bool:
    return not running(str(lab.folder / "measure.py"))


@pytest.mark.parametrize("executor", [OURS, REFERENCE], ids=["sidewinder", "reference"])
def test_ctrl_c_in_a_terminal(lab: LabFolder, executor: Sequence[str]) -> None:
    started = held(lab, executor)
    os.killpg(started.pid, signal.SIGINT)
    ended = started.wait()
    assert ended.rc == 1, ended.text
    assert nothing_runs(lab), "Snakemake ended while its measurement went on"
    measured = set(lab.starts) - {"pi5-2"}
    assert not (lab.folder / "runs/demo/summary/report.html").exists()
    (lab.folder / "HOLD-pi5-2").unlink()
    assert open_points(lab.run("-n", executor=executor).text) == sorted({"pi5-1", "pi5-2", "pi5-3"} - measured)
    again = lab.run(executor=executor)
    assert again.rc == 0, again.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2", "pi5-2", "pi5-3"], "what was stopped ran again, nothing else did"


def test_a_second_ctrl_c_does_not_wait_for_a_run_that_will_not_go(lab: LabFolder) -> None:
    script = lab.folder / "measure.py"
    deaf = "import signal; signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + '/asked', 'w'))\n"
    script.write_text(script.read_text().replace("lab, device", deaf + "lab, device", 1))
    started = held(lab)
    started.kill(signal.SIGINT)
    until(lambda: (lab.folder / "asked").exists(), "the run was asked to end")
    started.kill(signal.SIGINT)
    ended = started.wait()
    assert ended.rc == 1
    assert "Stopped at once" in ended.text, ended.text
    # nobody is left for long: the device kills what it was told to end, with or without us
    until(lambda: nothing_runs(lab), "the run that would not go is gone")
    (lab.folder / "HOLD-pi5-2").unlink()
    again = lab.run()
    assert again.rc == 0, again.text
    assert sorted(set(lab.starts)) == ["pi5-1", "pi5-2", "pi5-3"]
    assert open_points(lab.run("-n").text) == []


def test_sigterm_while_a_reference_run_measures(lab: LabFolder) -> None:
    """As a batch system ends it: Snakemake's own executor and its `sidewinder measure`, all of the group."""
    started = held(lab, REFERENCE)
    os.killpg(started.pid, signal.SIGTERM)
    ended = started.wait()
    assert ended.rc != 0
    until(lambda: nothing_runs(lab), "`sidewinder measure` ended what it ran")
    (lab.folder / "HOLD-pi5-2").unlink()
    assert lab.run().rc == 0
    assert sorted(set(lab.starts)) == ["pi5-1", "pi5-2", "pi5-3"]
