"""B03: values of a sweep reach the program as they are; none of them is ever read by a shell."""

from __future__ import annotations

import json
import sys

import pytest

from engine.helpers_engine import command, make_plan, record, run
from sidewinder.model import Device

NASTY = [
    "a b",
    "x; touch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "*",
    "-rf",
    "--help",
    "line1\nline2",
    "",
    "{prompt}",
    "{{prompt}}",
    "'\"\\",
    "naïve ☃ \U0001f40d",
    "| & > PWNED",
    "\t\r\x7f\x1b[31m",
    "%s %(x)d",
    "x" * 30_000,
]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """All values in one sweep, each echoed by the program that got it."""
    folder = tmp_path_factory.mktemp("b03")
    local = Device("local", "local", settings={"state_dir": str(folder / "agent")})
    echo = "import json, os, sys; print(json.dumps({'n': 1, 'argv': sys.argv[1:], 'env': os.environ['PROMPT']}))"
    points = [
        command(
            sys.executable,
            "-c",
            echo,
            "{prompt}",
            "p={prompt}.",
            parameters={"prompt": value},
            metrics="json",
            extra={"env": {"PROMPT": "{prompt}"}, "cwd": str(folder)},
        )
        for value in NASTY
    ]
    plan = make_plan(folder / "runs", points, devices=[local])
    run(folder / "runs", plan)
    return folder, plan


def test_every_value_arrives_byte_for_byte(measured):
    folder, plan = measured
    for run_id, point in plan.points.items():
        value = point.parameters["prompt"]
        written = record(folder / "runs", plan, run_id)
        assert written["status"] == "ok", written.get("error")
        name = written["raw"]["files"][0]
        told = json.loads((folder / "runs" / written["raw"]["dir"] / name).read_bytes())
        assert told["argv"] == [value, f"p={value}."]
        assert told["env"] == value
        assert written["workload"]["command"][3:] == told["argv"]


def test_nothing_was_run_by_a_shell(measured):
    folder, _ = measured
    assert not list(folder.rglob("PWNED"))


def test_distinct_values_are_distinct_points_with_safe_names(measured):
    _, plan = measured
    assert len(plan.points) == len(NASTY)
    assert all(run_id.replace("-", "").isalnum() and len(run_id) <= 63 for run_id in plan.points)
