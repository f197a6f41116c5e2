"""Runs in which ordinary rules are handed to another executor plugin, and how they are stopped."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from e2e.helpers_handover import PATIENCE_S, ClusterLab
from e2e.test_interrupted import measuring, until
from plugin.helpers_plugin import COMMON, OURS, Snakemake


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> ClusterLab:
    return ClusterLab(snakemake, tmp_path / "p")


def test_without_keep_going_what_has_begun_is_finished(lab: ClusterLab, snakemake: Snakemake) -> None:
    (lab.folder / "HOLD").touch()
    lab.says("HELD", "prepare")
    options = [one for one in (*OURS, *COMMON, *lab.options) if one != "--keep-going"]
    environ = {"XDG_CACHE_HOME": str(lab.folder / ".cache")}
    started = snakemake.start([*options, "all", "bad.txt"], lab.folder, environ)
    until(lambda: "Error in rule bad" in started.text() and bool(lab.lab.starts), started, PATIENCE_S)
    assert len(lab.lab.starts) == 1
    lab.says("HELD")
    (lab.folder / "HOLD").unlink()
    ended = started.wait(PATIENCE_S)
    assert ended.rc == 1
    assert (lab.folder / "prepare.txt").exists(), "the sibling goes on"
    assert sorted(lab.lab.starts) == ["pi5-1", "pi5-2"], "so do the points"
    assert not (lab.folder / "train.txt").exists(), "nothing new begins"


def test_ctrl_c_ends_both_kinds(lab: ClusterLab) -> None:
    (lab.folder / "HOLD").touch()
    lab.says("HELD", "prepare", "ran", "second", "first")
    started = lab.start()
    until(lambda: bool(lab.lab.starts) and len(lab.told("submitted")) == 3, started, PATIENCE_S)
    until(lambda: started.text().count("external jobid") == 3, started, PATIENCE_S)
    started.kill(signal.SIGINT)
    assert started.wait(PATIENCE_S).rc == 1
    assert sorted(lab.told("cancelled")) == sorted(lab.told("submitted"))
    assert not [pid for pid in lab.told("submitted") if is_alive(pid)]
    assert measuring(lab.folder) == []


def is_alive(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sigterm_waits_for_what_was_handed_over(lab: ClusterLab) -> None:
    (lab.folder / "HOLD").touch()
    lab.says("HELD", "prepare")
    started = lab.start("prepare.txt", "runs/demo/summary/points.csv")
    until(lambda: bool(lab.lab.starts) and started.text().count("external jobid") == 1, started, PATIENCE_S)
    started.kill(signal.SIGTERM)
    until(lambda: "SIGTERM: running work may finish" in started.text(), started, PATIENCE_S)
    (lab.folder / "HOLD").unlink()
    until(lambda: len(list((lab.folder / "runs/demo/records/pi5").glob("*.json"))) == 1, started, PATIENCE_S)
    assert not started.ended.is_set()
    lab.says("HELD")
    ended = started.wait(PATIENCE_S)
    assert ended.rc == 1
    assert "stopped by SIGTERM: 1 jobs were not run" in ended.text
    assert (lab.folder / "prepare.txt").exists()
    assert len(lab.lab.starts) == 1, "one was measured, none after it"
