"""B21 over pods: a cancelled or orphaned run leaves nobody behind in its pod, nothing is started beside a tree that
still lives, and a pod that nobody calls any more gives its node back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import POLICY, Begin, inside
from e2e.kubernetes.helpers_witness import PROGRAMS, PodWitness, programs, tree
from engine.helpers_engine import make_plan
from sidewinder.model import Device

# The runner dies by kill -9, and with it the wrapper: the kernel takes it along.
KILL_RUNNER = """
import glob, json, os, signal
(path,) = glob.glob('/sidewinder/runs/*/*/proc.json')
os.kill(json.load(open(path))['runner'], signal.SIGKILL)
print('killed')
"""


@pytest.fixture
def witness(namespace: Namespace) -> PodWitness:
    return PodWitness(namespace)


@pytest.fixture
def device(namespace: Namespace) -> Device:
    return namespace.device(volumes=[programs(namespace)])


def until_whole(witness: PodWitness, times: int = 1) -> None:
    def is_whole() -> bool:
        return len(witness.executions) >= times and len(witness.alive()) == 3

    until(lambda: witness.namespace.pod() and is_whole(), "the whole tree runs")


def killed_controller(device: Device, witness: PodWitness, root: Path, **settings: float) -> None:
    """A controller in a process of its own, which dies while the tree runs."""
    make_plan(root, [tree(device)], devices=[device], policy=POLICY)
    argv = [sys.executable, str(PROGRAMS / "controller.py"), str(root), json.dumps(settings)]
    controller = subprocess.Popen(argv)
    try:
        until_whole(witness)
    finally:
        controller.kill()
        controller.wait()


def test_cancelling_ends_the_whole_tree_and_says_so_only_then(
    device: Device, witness: PodWitness, begin: Begin
) -> None:
    sweep = begin([tree(device)], device)
    until_whole(witness)
    sweep.engine.cancel(False)
    sweep.told.wait(1)
    assert set(sweep.told.done.values()) == {"cancelled"}
    assert witness.alive() == [], "proven dead before it was told"
    assert sweep.engine.shutdown(20)


def test_the_next_controller_adopts_a_tree_that_runs(
    device: Device, witness: PodWitness, begin: Begin, tmp_path: Path
) -> None:
    killed_controller(device, witness, tmp_path / "runs")
    sweep = begin([tree(device)], device)
    until(lambda: "adopted" in sweep.ledger, "it has found the run")
    assert len(witness.alive()) == 3
    witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    assert witness.alive() == []
    assert [execution.complete for execution in witness.executions] == [True]
    assert sweep.attempts == [(1, "ok")]


def test_a_tree_that_lost_its_runner_is_killed_before_another_one_starts(
    device: Device, witness: PodWitness, begin: Begin, tmp_path: Path
) -> None:
    killed_controller(device, witness, tmp_path / "runs")
    before = set(witness.alive())
    assert inside(witness.namespace, KILL_RUNNER).strip() == "killed"
    until(lambda: len(witness.alive()) == 2, "two orphans are left")
    sweep = begin([tree(device)], device)
    until_whole(witness, times=2)
    assert not before & set(witness.alive())
    witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    assert [execution.complete for execution in witness.executions] == [False, True]
    assert witness.overlaps() == []
    assert sweep.attempts == [(1, "lost"), (2, "ok")]


def test_nobody_comes_back(namespace: Namespace, witness: PodWitness, tmp_path: Path) -> None:
    device = namespace.device(volumes=[programs(namespace)], idle_timeout_s=20)
    killed_controller(device, witness, tmp_path / "runs", lease_s=3.0)
    until(lambda: not witness.alive(), "the lease ends the whole tree")
    (cut,) = witness.executions
    assert not cut.complete
    until(lambda: witness.namespace.pod()["status"]["phase"] == "Succeeded", "the pod gives its node back")
