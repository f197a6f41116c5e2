"""Hosts that reboot, lose their power and get it back, or never do.

| what happens during the run | outcome |
| --- | --- |
| reboot | attempt 2 after the reboot |
| power cut, and power comes back | the same |
| power cut for good | the others finish, its points are holes, `sidewinder devices` says so; with power: measured |
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from netns.conftest import MakeSweep
from netns.controller import Sweep, quicken, witnessed
from netns.lab_hosts import LabHosts, workload
from sidewinder import cli, config
from sidewinder.files import plan as plan_file

LEASE_S = 4.0  # of a device that is gone for good: so long it is called
GIVES_UP = {"max_transport_failures": 2, "recovery_after_s": 0.5, "give_up_after_s": 1.0}


@pytest.fixture
def gone(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(lease_s=LEASE_S, setter=monkeypatch.setattr)


@pytest.mark.parametrize("how", ["reboot", "power-cut"])
def test_a_run_that_a_reboot_ended_is_measured_again(how: str, lab: LabHosts, sweep: MakeSweep) -> None:
    host = lab["h1"]
    patient = host.device(recovery_after_s=0.5, give_up_after_s=600.0)
    one = sweep([witnessed("h1", "a"), witnessed("h1", "b", 0.1)], [patient])
    one.until_running(host, "a")
    if how == "reboot":
        host.reboot()
    else:
        host.power_off()
        one.until_lost()
        host.power_on()
    one.until_running(host, "a", times=2)
    host.witness.let_go()
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [execution.complete for execution in host.witness.of("a")] == [False, True]
    assert [execution.complete for execution in host.witness.of("b")] == [True]
    assert host.witness.overlaps() == []
    assert one.attempts("a") == [(1, "lost"), (2, "ok")]
    assert one.record("a")["metrics"]["start_ns"] == host.witness.of("a")[1].start_ns


def lab_file(lab: LabHosts, folder: Path) -> Path:
    """Two points on each of two hosts, as a person writes it."""
    path = folder / "lab.yaml"
    block = {
        "backend": "command",
        "devices": ["h1", "h2"],
        "command": list(workload("{device}-{number}", "hold")),
        "parameters": {"number": [1, 2]},
        "metrics": {"value": r'"value": (\d+)'},
    }
    written = {
        "experiment": "power",
        "output_dir": str(folder / "runs"),
        "devices": {host.name: {"kind": "ssh", **host.settings()} for host in (lab["h1"], lab["h2"])},
        "policy": {
            "breaker": GIVES_UP,
            "retry": {"backoff_s": 0.1, "max_backoff_s": 0.5},
            "order": {"by": "config"},
        },
        "matrix": [block],
    }
    path.write_text(yaml.safe_dump(written, sort_keys=False))
    return path


def run(path: Path) -> Sweep:
    plan = config.load_files([str(path)])
    root = Path(plan.lab.output_dir)
    return Sweep(root, plan_file.publish(str(root), plan))


def by_device(one: Sweep) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for (_, run_id), outcome in one.told.done.items():
        found.setdefault(one.plan.points[run_id].device, []).append(outcome)
    return found


def test_a_power_cut_for_good_costs_the_points_of_that_host_until_it_is_back(
    lab: LabHosts, tmp_path: Path, gone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lab_file(lab, tmp_path)
    dead, well = lab["h1"], lab["h2"]
    one = run(path)
    try:
        one.until_running(dead, "h1-1")
        dead.power_off()
        well.witness.let_go()
        one.finish()
    finally:
        one.end()
    assert by_device(one) == {"h1": ["hole", "hole"], "h2": ["ok", "ok"]}
    assert [(execution.run, execution.complete) for execution in well.witness.executions] == [
        ("h2-1", True),
        ("h2-2", True),
    ]
    capsys.readouterr()
    cli.main(["devices", "list", "--configfile", str(path), "--json"])
    board = json.loads(capsys.readouterr().out)["devices"]
    assert (board["h1"]["state"], board["h2"]["state"]) == ("down", "up")
    assert board["h1"]["since_utc"]
    assert board["h1"]["next_probe"] == "at the start of the next run"
    dead.power_on()
    dead.witness.let_go()
    again = run(path)
    try:
        again.finish()
    finally:
        again.end()
    assert by_device(again)["h1"] == ["ok", "ok"]
    assert [execution.run for execution in dead.witness.executions] == ["h1-1", "h1-1", "h1-2"]
    assert len(well.witness.executions) == 2, "what is measured stays measured"
