"""A command: one way to measure a lab of hosts, started as often as a person does, in a process that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

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
    left = running.processes()
    assert any("h1-1" in argv for argv in left), f"its run is gone: {left}"
    campaign = json.loads((command.root / "plan.json").read_text())["campaign"]
    results = list(ended.home.glob(f".cache/sidewinder/runs/{campaign}/*.1/result"))
    assert len(results) == 1, results
    assert waiting.witness.executions == []
    ended.heal()
    waiting.thaw_sshd()
