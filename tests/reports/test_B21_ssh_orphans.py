"""B21: a cancelled or orphaned run over SSH leaves nobody behind: not the wrapper, not its child, not a grandchild that
made itself a session of its own. And nothing is started beside a tree that still lives.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.helpers_badluck import running, until
from e2e.helpers_ssh import ProxyThread, Sshd, needs_sshd
from engine.helpers_engine import Told, command, make_plan, only, record
from netns.controller import quicken
from netns.lab_hosts import Witness
from sidewinder.engine import Engine
from sidewinder.model import Device, Plan, Policy, RetryPolicy

pytestmark = needs_sshd
TESTS = Path(__file__).resolve().parents[1]
CONTROLLER = TESTS / "netns" / "controller.py"
POLICY = Policy(retry=RetryPolicy(max_attempts=20, backoff_s=0.1, max_backoff_s=0.5))


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    quicken(setter=monkeypatch.setattr)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


class Tree:
    """One point that is three processes, each with the folder on its command line."""

    def __init__(self, folder: Path, device: Device) -> None:
        self.root = folder / "runs"
        self.witness = Witness(folder / "witness")
        argv = (sys.executable, "-S", str(TESTS / "netns/tree.py"), "wrapper", str(TESTS / "netns/witness.py"))
        point = command(*argv, str(self.witness.folder), "hold", metrics={"v": r'"start_ns": (\d+)'}, device=device.id)
        self.plan: Plan = make_plan(self.root, [point], devices=[device], policy=POLICY)

    def start(self) -> Engine:
        self.told = Told()
        engine = Engine(self.told)
        engine.add_lab(str(self.root), self.plan)
        engine.submit([(str(self.root), only(self.plan))])
        return engine

    def alive(self) -> list[str]:
        return running(str(self.witness.folder))

    def until_whole(self, times: int = 1) -> None:
        until(lambda: len(self.witness.executions) >= times and len(self.alive()) == 3, "the whole tree runs")

    def attempts(self) -> list[str]:
        return [attempt["outcome"] for attempt in record(self.root, self.plan, only(self.plan))["attempts"]]

    def end(self, engine: Engine) -> None:
        """Let it come to its end."""
        self.witness.let_go()
        self.told.wait(1)
        assert engine.shutdown(20)
        assert set(self.told.done.values()) == {"ok"}
        until(lambda: not self.alive(), "nobody is left")
        assert self.witness.overlaps() == []

    def clear(self) -> None:
        for line in self.alive():
            with suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)


@pytest.fixture
def tree(server: Sshd, tmp_path: Path) -> Iterator[Tree]:
    one = Tree(tmp_path, server.device())
    yield one
    one.clear()


def test_cancelling_ends_the_whole_tree_and_says_so_only_then(tree: Tree) -> None:
    engine = tree.start()
    tree.until_whole()
    engine.cancel(False)
    tree.told.wait(1)
    assert set(tree.told.done.values()) == {"cancelled"}
    assert tree.alive() == [], "proven dead before it was told"
    assert engine.shutdown(20)


def killed_controller(tree: Tree, settings: dict[str, float]) -> None:
    """A controller in a process of its own, which dies while the tree runs."""
    controller = subprocess.Popen([sys.executable, str(CONTROLLER), str(tree.root), json.dumps(settings)])
    try:
        tree.until_whole()
    finally:
        controller.kill()
        controller.wait()


def test_the_next_controller_adopts_a_tree_that_runs(tree: Tree) -> None:
    killed_controller(tree, {})
    engine = tree.start()
    ledger = tree.root / "retries.jsonl"
    until(lambda: ledger.exists() and '"adopted"' in ledger.read_text(), "it has found the run")
    assert len(tree.alive()) == 3
    tree.end(engine)
    assert [execution.complete for execution in tree.witness.executions] == [True]
    assert tree.attempts() == ["ok"]


def test_the_next_controller_kills_a_tree_that_lost_its_runner_before_it_starts_another(
    tree: Tree, server: Sshd
) -> None:
    """Kill -9 of controller and runner: the kernel takes the wrapper along, child and grandchild live on."""
    killed_controller(tree, {})
    (proc,) = server.state.glob("runs/*/*/proc.json")
    os.kill(json.loads(proc.read_text())["runner"], signal.SIGKILL)
    until(lambda: len(tree.alive()) == 2, "two orphans are left")
    before = {line.split()[0] for line in tree.alive()}
    engine = tree.start()
    tree.until_whole(times=2)
    assert not before & {line.split()[0] for line in tree.alive()}
    tree.end(engine)
    assert [execution.complete for execution in tree.witness.executions] == [False, True]
    assert tree.attempts() == ["lost", "ok"]


def test_nobody_comes_back(tree: Tree) -> None:
    killed_controller(tree, {"lease_s": 3.0})
    until(lambda: not tree.alive(), "the lease ends the whole tree")
    (cut,) = tree.witness.executions
    assert not cut.complete


def test_the_network_is_gone_for_longer_than_the_lease(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(lease_s=5.0, connect_s=1.0, setter=monkeypatch.setattr)
    with ProxyThread(server.port) as proxy:
        tree = Tree(tmp_path, server.device(port=proxy.port))
        try:
            engine = tree.start()
            tree.until_whole()
            proxy.do(lambda one: (setattr(one, "refuses", True), one.swallow()))
            until(lambda: not tree.alive(), "the whole tree ends by itself")
            gone_s = time.monotonic()
            proxy.do(lambda one: (setattr(one, "refuses", False), one.heal()))
            tree.until_whole(times=2)
            tree.end(engine)
        finally:
            tree.clear()
    first, second = tree.witness.executions
    assert (first.complete, second.complete) == (False, True)
    assert second.start_s > gone_s
    assert tree.attempts() == ["lost", "ok"]
