"""Relative paths in a lab: on this machine they count from where the person stands, not from the agent's folders."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from sidewinder import config
from sidewinder.engine import run_points
from sidewinder.files import plan as plans

LAB = """\
experiment: paths
output_dir: runs/paths
devices: {local: {}}
matrix:
  - backend: command
    devices: [local]
    command: [./say.sh, "{word}"]
    parameters: {word: [hello]}
    metrics: json
"""


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pathlib.Path("lab.yaml").write_text(LAB)
    pathlib.Path("say.sh").write_text('#!/bin/sh\necho "{\\"length\\": ${#1}}"\n')
    os.chmod("say.sh", 0o755)
    return tmp_path


def test_a_program_beside_the_lab_is_found(lab: pathlib.Path):
    plan = config.load_files(["lab.yaml"])
    plan = plans.publish(plan.lab.output_dir, plan)
    (run_id,) = plan.points
    run_points(plan.lab.output_dir, plan, [run_id])
    record = json.loads((lab / f"runs/paths/records/local/{run_id}.json").read_text())
    assert record["status"] == "ok", record
    assert record["metrics"]["length"] == 5
    assert record["identity"]["command"][0] == "./say.sh"  # what a point is does not depend on where the lab lies
    assert record["device"]["python_executable"]
