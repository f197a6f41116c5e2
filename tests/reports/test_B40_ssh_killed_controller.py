"""B40 over SSH: the controller is killed at its start, while it submits and while it writes a record; each time the
same command again, with nothing to repair, nothing measured twice and nobody left on the device.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_badluck import records, running
from e2e.helpers_ssh import Sshd, needs_sshd
from netns.lab_hosts import Witness
from plugin.helpers_plugin import LabFolder, Snakemake, open_points

pytestmark = needs_sshd
TESTS = Path(__file__).resolve().parents[1]
POINTS = 6
# Like e2e/helpers_death.py, but only where a record is written: the temp beside it, half of its bytes, its final name.
ARM = f"""\
import os, signal, sys
sys.path.insert(0, {str(TESTS)!r})
from e2e.helpers_death import arm
from sidewinder.files.atomic import FileOps

def arm_records(step):
    real = getattr(FileOps, step)
    def last(self, *args):
        path = os.readlink("/proc/self/fd/%d" % args[0]) if step == "write" else args[0]
        if "/records/" not in path:
            return real(self, *args)
        if step == "write":
            os.write(args[0], args[1][:len(args[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(FileOps, step, last)

if os.environ.get("DIE_IN_RECORD"):
    arm_records(os.environ.pop("DIE_IN_RECORD"))
arm()
"""
MOMENTS = [
    {"DIE_AT": "connect:1:before"},
    {"DIE_AT": "start:1:before"},
    {"DIE_AT": "start:1:after"},
    {"DIE_IN_RECORD": "create"},
    {"DIE_IN_RECORD": "write"},
    {"DIE_IN_RECORD": "rename"},
    {"DIE_AT": "ack:1:before"},
]


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


def test_the_same_command_just_works(snakemake: Snakemake, server: Sshd, tmp_path: Path) -> None:
    witness = Witness(tmp_path / "witness")
    program = str(TESTS / "netns" / "witness.py")
    block = {
        "backend": "command",
        "devices": ["pi5"],
        "command": [sys.executable, "-S", program, str(witness.folder), "{threads}", "0.05"],
        "threads": list(range(1, POINTS + 1)),
        "metrics": {"start_ns": r'"start_ns": (\d+)'},
    }
    devices = {"pi5": {"kind": "ssh", **server.settings()}}
    lab = LabFolder(snakemake, tmp_path / "lab", {"experiment": "demo", "devices": devices, "matrix": [block]})
    snakefile = lab.folder / "Snakefile"
    snakefile.write_text(ARM + snakefile.read_text())
    home = {"HOME": str(server.home)}

    for moment in MOMENTS:
        ended = lab.run(env={**home, **moment})
        assert ended.rc == -signal.SIGKILL, f"{moment} never came by:\n{ended.text}"
        assert "Traceback" not in ended.text
    ended = lab.run(env=home)
    assert ended.rc == 0, ended.text
    assert open_points(lab.run("-n", env=home).text) == []

    root = lab.folder / "runs/demo"
    starts = {str(one["knobs"]["threads"]): one["metrics"]["start_ns"] for one in records(root).values()}
    assert sorted(starts) == [str(number) for number in range(1, POINTS + 1)]
    assert {one["status"] for one in records(root).values()} == {"ok"}
    complete = [execution for execution in witness.executions if execution.complete]
    assert sorted(execution.run for execution in complete) == sorted(starts), "each ran to its end once"
    assert {execution.run: execution.start_ns for execution in complete} == starts
    assert len(witness.executions) == len(complete)
    assert witness.overlaps() == []
    assert running(str(witness.folder)) == []
    assert not list(root.rglob("*.partial"))
    assert not (root / "superseded").exists()
    claims = [json.loads(line) for line in (root / "journal.jsonl").read_text().splitlines()]
    assert {line["device"] for line in claims if "run_id" in line} == {"pi5"}
