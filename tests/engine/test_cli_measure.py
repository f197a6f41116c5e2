"""``sidewinder measure``: one record, honest exit codes, a small import."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.helpers_engine import WAIT_S, Told, command, make_plan, noops, record
from sidewinder import cli
from sidewinder.engine import Engine
from sidewinder.files import shards
from sidewinder.ids import shard_id
from sidewinder.model import Device, Policy


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def path_of(root, run_id, device="local"):
    return str(root / "records" / device / f"{run_id}.json")


def test_exit_codes(root, local, capsys):
    far = Device("pi5", "ssh", settings={"host": "pi5.lan"})
    points = [command("true"), command("false"), command("true", device="pi5")]
    plan = make_plan(root, points, devices=[local, far])
    good, bad, hole = plan.points
    assert cli.main(["measure", path_of(root, good)]) == 0
    assert cli.main(["measure", path_of(root, bad)]) == 0
    assert cli.main(["measure", path_of(root, bad), "--strict"]) == 3
    assert cli.main(["measure", path_of(root, hole, "pi5")]) == 0
    assert cli.main(["measure", path_of(root, hole, "pi5"), "--strict"]) == 4
    out = capsys.readouterr().out
    assert f"{good}: ok" in out
    assert f"{bad}: failed: exit status 1" in out
    assert [record(root, plan, run_id)["status"] for run_id in plan.points] == ["ok", "failed", "failed"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["{root}/records/local/nosuch.json"],
        ["{root}/records/pi5/{run_id}.json"],
        ["{root}/other/local/{run_id}.json"],
        ["/nowhere/records/local/{run_id}.json"],
        ["--run-id", "{run_id}"],
        ["--run-id", "{run_id}", "--folder", "/nowhere"],
        ["{root}/records/local/{run_id}.json", "--folder", "{root}"],
        ["{root}/shards/local/0123456789ab.json"],
        [],
    ],
)
def test_bad_usage_is_2_and_says_what(root, arguments, capsys):
    plan = make_plan(root, noops(1))
    (run_id,) = plan.points
    assert cli.main(["measure", *(a.format(root=root, run_id=run_id) for a in arguments)]) == 2
    assert capsys.readouterr().err.startswith("sidewinder measure: ")
    assert not (root / "records").exists()


def test_a_done_point_is_left_alone_unless_forced(root, capsys):
    plan = make_plan(root, noops(1))
    (run_id,) = plan.points
    assert cli.main(["measure", "--run-id", run_id, "--folder", str(root)]) == 0
    before = record(root, plan, run_id)
    assert cli.main(["measure", path_of(root, run_id)]) == 0
    assert record(root, plan, run_id) == before
    assert "nothing to measure" in capsys.readouterr().out
    assert cli.main(["measure", path_of(root, run_id), "--force", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["points"] == {run_id: {"outcome": "ok"}}
    assert len(os.listdir(root / "superseded" / "local")) == 1


def test_a_shard_is_measured_by_its_manifest(root, capsys):
    plan = make_plan(root, noops(5), policy=Policy(points_per_job=3))
    first = shard_id(list(plan.points)[:3])
    manifest = root / "shards" / "local" / f"{first}.json"
    assert cli.main(["measure", str(manifest), "--json"]) == 0
    assert set(shards.read(str(manifest))) == set(list(plan.points)[:3])
    assert len(list((root / "records").rglob("*.json"))) == 3


def test_a_sweep_that_runs_holds_the_folder(root, capsys):
    plan = make_plan(root, noops(1))
    (run_id,) = plan.points
    sweep = Engine(Told())
    sweep.add_lab(str(root), plan)
    try:
        assert cli.main(["measure", path_of(root, run_id)]) == 1
    finally:
        sweep.shutdown(5)
    assert str(os.getpid()) in capsys.readouterr().err


def sidewinder(*arguments):
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; from sidewinder.cli import main; sys.exit(main())", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_at_once_stand_in_line(root, local, tmp_path):
    log = tmp_path / "spans"
    code = (
        "import os, time\n"
        f"fd = os.open({str(log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "os.write(fd, b'begin\\n'); time.sleep(0.05); os.write(fd, b'end\\n')\n"
    )
    points = [command(sys.executable, "-c", code, parameters={"i": i}) for i in range(2)]
    plan = make_plan(root, points, devices=[local])
    siblings = [sidewinder("measure", path_of(root, run_id)) for run_id in plan.points]
    for sibling in siblings:
        sibling.communicate(timeout=WAIT_S)
        assert sibling.returncode == 0
    assert log.read_text().split() == ["begin", "end"] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_leaves_no_record(root, local, tmp_path, number):
    pid = tmp_path / "pid"
    code = f"import os, time, pathlib; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    plan = make_plan(root, [command(sys.executable, "-c", code)], devices=[local])
    (run_id,) = plan.points
    process = sidewinder("measure", path_of(root, run_id))
    assert "started" in process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert not (root / "records").exists()
    if pid.exists() and pid.read_text():
        assert not Path(f"/proc/{pid.read_text()}").exists()


def test_importing_the_command_line_is_cheap():
    code = "import sys, sidewinder.cli.measure; print(*sorted(sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not {"pandas", "pydantic", "asyncio", "snakemake", "yaml"} & set(loaded)
