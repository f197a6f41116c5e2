"""The controller is killed while three hosts are in three states, and the same command is started again.

| state of the run when the controller dies | outcome |
| --- | --- |
| running | adopted: the same execution |
| ended on its host, not fetched | fetched: the same execution |
| claimed in the journal, the host has not heard of it | started, once |
| all three, and nobody comes back | every host is quiet after a lease |
| all three, and the power of the whole lab is cut | measured again, fetched, started |
| the controller sleeps for longer than the lease | every host is quiet; it wakes up and measures again |
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from netns.lab_hosts import LabHosts, until, workload
from plugin.helpers_plugin import LabFolder, Snakemake, open_points
from sidewinder import config
from sidewinder.files import plan as plan_file

Settings = dict[str, float]  # for `quicken`
TESTS = Path(__file__).resolve().parents[1]


class Command(Protocol):
    """One way to measure a lab, started as often as a person starts it."""

    root: Path

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def finish(self) -> None: ...


def lab_config(lab: LabHosts, root: Path) -> dict[str, Any]:
    block = {
        "backend": "command",
        "devices": [host.name for host in lab],
        "command": list(workload("{device}-{threads}", "hold")),
        "threads": [1, 2],
        "metrics": {"start_ns": r'"start_ns": (\d+)'},
    }
    return {
        "experiment": "three",
        "output_dir": str(root),
        "devices": {host.name: {"kind": "ssh", **host.settings()} for host in lab},
        "policy": {"order": {"by": "config"}},
        "matrix": [block],
    }


class EngineCommand:
    """The engine, in a process of its own."""

    def __init__(self, lab: LabHosts, folder: Path, settings: Settings) -> None:
        self.root, self._settings = folder / "runs", settings
        path = folder / "lab.yaml"
        path.write_text(yaml.safe_dump(lab_config(lab, self.root)))
        plan_file.publish(str(self.root), config.load_files([str(path)]))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = str(Path(__file__).with_name("controller.py"))
        argv = [sys.executable, program, str(self.root), json.dumps(self._settings)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def finish(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        out, _ = process.communicate(timeout=60)
        assert set(json.loads(out).values()) == {"ok"}


class SnakemakeCommand:
    """The whole: Snakemake with our rules, executor and scheduler."""

    def __init__(self, snakemake: Snakemake, lab: LabHosts, folder: Path, settings: Settings) -> None:
        self._lab = LabFolder(snakemake, folder / "lab", lab_config(lab, folder / "runs"))
        self.root = folder / "runs"
        snakefile = self._lab.folder / "Snakefile"
        said = f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom netns.controller import quicken\n"
        snakefile.write_text(f"{said}quicken(**{settings!r})\n{snakefile.read_text()}")

    def start(self) -> None:
        self._started = self._lab.start()

    def kill(self) -> None:
        if not self._started.ended.is_set():
            os.kill(self._started.pid, signal.SIGKILL)
            self._started.wait()

    def finish(self) -> None:
        ended = self._started.wait()
        assert ended.rc == 0, ended.text
        assert open_points(self._lab.run("-n").text) == []


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture(params=["engine", "snakemake"])
def controller(
    request: pytest.FixtureRequest, lab: LabHosts, tmp_path: Path
) -> Iterator[Callable[[Settings], Command]]:
    made: list[Command] = []

    def make(settings: Settings) -> Command:
        if request.param == "engine":
            made.append(EngineCommand(lab, tmp_path, settings))
        else:
            made.append(SnakemakeCommand(request.getfixturevalue("snakemake"), lab, tmp_path, settings))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def journal(root: Path) -> list[dict[str, Any]]:
    path = root / "journal.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def claimed(root: Path, device: str) -> bool:
    return any(device == line.get("device") and "run_id" in line for line in journal(root))


def into_three_states(lab: LabHosts, command: Command) -> None:
    """h1 runs, h2 has ended and is not fetched, h3 is claimed: then the controller dies."""
    running, ended, waiting = lab
    waiting.freeze_sshd()
    command.start()
    until(lambda: running.witness.executions and ended.witness.executions, "two of three run")
    until(lambda: claimed(command.root, "h3"), "the third is claimed")
    ended.drop()
    ended.witness.let_go("h2-1")
    until(lambda: not ended.processes() and not ended.runners(), "it ends unheard, its result is written")
    command.kill()
    assert len(running.processes()) == 1
    campaign = json.loads((command.root / "plan.json").read_text())["campaign"]
    assert len(list(ended.home.glob(f".cache/sidewinder/runs/{campaign}/*.1/result"))) == 1
    assert waiting.witness.executions == []
    ended.heal()
    waiting.thaw_sshd()


def test_the_same_command_again_measures_nothing_twice(
    controller: Callable[[Settings], Command], lab: LabHosts
) -> None:
    command = controller({})
    into_three_states(lab, command)
    command.start()
    until(lambda: lab["h3"].witness.executions, "the claimed one is started")
    until(lambda: lab["h2"].witness.of("h2-2"), "h2 goes on with its next point")
    assert len(lab["h1"].witness.executions) == 1, "the one that runs was waited for"
    for host in lab:
        host.witness.let_go()
    command.finish()
    records = {}
    for path in command.root.glob("records/*/*.json"):
        written = json.loads(path.read_text())
        records[f"{written['device']['device_id']}-{written['knobs']['threads']}"] = written
    assert sorted(records) == ["h1-1", "h1-2", "h2-1", "h2-2", "h3-1", "h3-2"]
    assert {written["status"] for written in records.values()} == {"ok"}
    for host in lab:
        assert [execution.complete for execution in host.witness.executions] == [True, True]
        assert host.witness.overlaps() == []
        until(lambda host=host: host.processes() == [], "nothing is left there")
        for execution in host.witness.executions:
            assert records[execution.run]["metrics"]["start_ns"] == execution.start_ns
    adopted = [run for run, written in records.items() if "taken over" in str(written.get("warnings"))]
    assert sorted(adopted) in (["h1-1", "h2-1"], ["h1-1", "h2-1", "h3-1"])
    until(lambda: not any(host.runners() for host in lab), "no runner is left")


def test_if_nobody_comes_back_every_host_falls_quiet(controller: Callable[[Settings], Command], lab: LabHosts) -> None:
    command = controller({"lease_s": 8.0})
    into_three_states(lab, command)
    until(lambda: not any(host.processes() or host.runners() or host.fronts() for host in lab), "all are quiet")
    assert [[execution.complete for execution in host.witness.executions] for host in lab] == [[False], [True], []]


def test_the_power_of_the_whole_lab_is_cut(lab: LabHosts, tmp_path: Path) -> None:
    command = EngineCommand(lab, tmp_path, {})
    try:
        into_three_states(lab, command)
        for host in lab:
            host.power_off()
        for host in lab:
            host.power_on()
            host.witness.let_go()
        command.start()
        command.finish()
    finally:
        command.kill()
    found = {host.name: sorted((one.run, one.complete) for one in host.witness.executions) for host in lab}
    assert found == {
        "h1": [("h1-1", False), ("h1-1", True), ("h1-2", True)],
        "h2": [("h2-1", True), ("h2-2", True)],
        "h3": [("h3-1", True), ("h3-2", True)],
    }


def test_a_controller_that_sleeps_for_longer_than_the_lease(lab: LabHosts, tmp_path: Path) -> None:
    """A laptop whose lid is shut for a while."""
    command = EngineCommand(lab, tmp_path, {"lease_s": 4.0})
    try:
        command.start()
        until(lambda: all(host.witness.executions for host in lab), "all three run")
        command.signal(signal.SIGSTOP)
        until(lambda: not any(host.processes() or host.runners() for host in lab), "all are quiet")
        for host in lab:
            host.witness.let_go()
        command.signal(signal.SIGCONT)
        command.finish()
    finally:
        command.kill()
    for host in lab:
        of_first = host.witness.of(f"{host.name}-1")
        assert [execution.complete for execution in of_first] == [False, True]
        assert [execution.complete for execution in host.witness.of(f"{host.name}-2")] == [True]
        assert host.witness.overlaps() == []
