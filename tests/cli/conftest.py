"""A small real lab for the commands: one point that succeeds, one that fails, both measured on this machine."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from sidewinder import cli, config
from sidewinder.files import plan as plans

LAB = """\
experiment: cli
output_dir: runs/cli
devices: {local: {}}
matrix:
  - backend: command
    devices: [local]
    command: [sh, -c, 'echo seconds={n}; echo "the disk is sad" >&2; exit {code}']
    parameters: {n: [1.5], code: [0, 7]}
    metrics: {seconds: 'seconds=([\\d.]+)'}
"""


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Lab(NamedTuple):
    folder: pathlib.Path
    good: str
    bad: str
    say: Callable[..., Said]


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """The lab's folder is the working directory; ``lab.say("plan", "--json")`` runs a command in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # the agent's state: nothing of other tests
    (tmp_path / "config").mkdir()
    (tmp_path / "config/lab.yaml").write_text(LAB)
    plan = config.load_files(["config/lab.yaml"])
    plans.publish(plan.lab.output_dir, plan)
    ids = {point.parameters["code"]: run_id for run_id, point in plan.points.items()}

    def say(*words: str) -> Said:
        capsys.readouterr()
        code = cli.main(list(words))
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return Lab(tmp_path, ids[0], ids[7], say)
