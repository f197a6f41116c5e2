"""Ordinary rules handed to another executor plugin (the real `cluster-generic`) in one invocation with a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.helpers_handover import PATIENCE_S, ClusterLab
from e2e.test_interrupted import until
from plugin.helpers_plugin import Snakemake


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> ClusterLab:
    return ClusterLab(snakemake, tmp_path / "p")


def test_ordinary_jobs_run_there_and_everything_else_here(lab: ClusterLab) -> None:
    run = lab.run()
    assert run.rc == 0, run.text
    found = {
        name: (lab.folder / f"{name}.txt").read_text().split()
        for name in ("train", "prepare", "ran", "second", "probe", "here")
    }
    assert found == {
        "train": ["cluster"],
        "prepare": ["cluster"],
        "ran": ["cluster"],
        "second": ["cluster", "cluster"],
        "probe": ["cluster", "here"],
        "here": ["here"],
    }
    assert len(lab.told("submitted")) == 4, "a group is one job"
    assert sorted(lab.lab.starts) == ["pi5-1", "pi5-2"]
    again = lab.run()
    assert again.rc == 0
    assert "Nothing to be done" in again.text


def test_one_that_fails_and_one_that_is_not_taken_fail_alone(lab: ClusterLab) -> None:
    lab.says("REFUSE", "ran")
    run = lab.run("all", "after_bad.txt")
    assert run.rc == 1
    assert "Error in rule bad" in run.text
    assert "Error submitting jobscript (exit code 9)" in run.text
    assert run.text.count("Error in rule") == 2, run.text
    assert (lab.folder / "train.txt").exists(), "the siblings, and what comes after the sweep, are done"
    assert sorted(lab.lab.starts) == ["pi5-1", "pi5-2"]
    assert not (lab.folder / "after_bad.txt").exists()
    lab.says("REFUSE")
    assert lab.run().rc == 0, "the same command does the rest"


def test_jobs_that_run_elsewhere_do_not_wait_for_the_local_device(lab: ClusterLab) -> None:
    (lab.folder / "HOLD").touch()
    started = lab.start()
    until(lambda: bool(lab.lab.starts) and (lab.folder / "ran.txt").exists(), started, PATIENCE_S)
    until(lambda: "Finished job" in started.text(), started, PATIENCE_S)
    assert len(lab.lab.starts) == 1, "the point was being measured all the time"
    (lab.folder / "HOLD").unlink()
    assert started.wait(PATIENCE_S).rc == 0


def test_the_profile_says_it_with_the_other_plugin_s_own_keys(lab: ClusterLab) -> None:
    (lab.folder / "mine").mkdir()
    (lab.folder / "mine/config.yaml").write_text(
        "sidewinder-ordinary-executor: cluster-generic\n"
        f"cluster-generic-submit-cmd: {lab.folder}/submit {{rule}}\n"
        "seconds-between-status-checks: 1\n"
    )
    run = lab.lab.start("--profile", "mine", "--", "ran.txt").wait(PATIENCE_S)
    assert run.rc == 0, run.text
    assert (lab.folder / "ran.txt").read_text() == "cluster"
