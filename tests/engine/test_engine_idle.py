"""A device that somebody else works on: its points wait and become holes, other devices go on."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from engine.helpers_engine import QUICK, command, make_plan, only, record, run
from sidewinder.model import Device

ALWAYS = {"max_busy_share": 1.0, "window_s": 0.1, "wait_s": 0.0}
NEVER = {"max_busy_share": 0.0, "window_s": 0.2, "wait_s": 0.0}  # with something that burns a core


@pytest.fixture
def burner():
    process = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
    yield
    process.kill()
    process.wait()


def device(tmp_path, name="local", **more):
    return Device(name, "local", settings={"state_dir": str(tmp_path / name)}, lock=name, **more)


def test_the_reading_of_the_gate_is_in_the_record_and_not_in_the_run_id(tmp_path):
    root = tmp_path / "runs"
    gated = device(tmp_path, idle_gate=ALWAYS)
    plan = make_plan(root, [command("true")], devices=[gated])
    assert set(run(root, plan).done.values()) == {"ok"}
    written = record(root, plan, only(plan))
    assert 0 <= written["conditions"]["idle"]["busy_share"] <= 1
    assert written["conditions"]["idle"]["max_busy_share"] == 1.0
    assert "idle_gate" not in written["identity"]
    assert list(make_plan(tmp_path / "other", [command("true")], devices=[device(tmp_path)]).points) == [only(plan)]


def test_a_busy_device_costs_holes_that_name_it_and_the_others_go_on(tmp_path, burner):
    root = tmp_path / "runs"
    busy = device(
        tmp_path, "busy", idle_gate=NEVER, max_transport_failures=2, recovery_after_s=0.0, give_up_after_s=0.0
    )
    well = device(tmp_path, "well")
    mark = tmp_path / "ran"
    points = [command("touch", str(mark), device="busy", parameters={"i": i}) for i in range(3)]
    points += [command("true", device="well", parameters={"i": i}) for i in range(3)]
    plan = make_plan(root, points, devices=[busy, well], policy=replace(QUICK, busy_wait_s=1.0))
    told = run(root, plan)
    by_device = {}
    for (_, run_id), outcome in told.done.items():
        by_device.setdefault(plan.points[run_id].device, set()).add(outcome)
    assert by_device == {"busy": {"hole"}, "well": {"ok"}}
    assert not mark.exists()
    downs = [event for event in told.events if event["kind"] == "down"]
    assert "the device was not idle" in downs[0]["reason"]
    assert "Busiest: " in downs[0]["reason"]
    holes = [record(root, plan, r)["failure"] for r, p in plan.points.items() if p.device == "busy"]
    assert {hole["evidence"]["cause"] for hole in holes} == {"transport"}
    assert any("the device was not idle" in hole["message"] for hole in holes)
