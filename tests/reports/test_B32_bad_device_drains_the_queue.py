"""B32: one sick node fails everything in a second and eats the queue, or stalls all submission, or ends it in silence.

A device that says it is unfit is out at once; one that fails on the way is out after its limit, and costs one probe
and one trial a cooldown. Its points stay its own (or move where the lab declares it), the others of its group go on,
and the run says what is out and ends. The same with two devices, and with a single device and one point.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import command, make_plan, record, run
from engine.helpers_scripted import scripted
from sidewinder.engine import dispatch
from sidewinder.model import Device, Plan

POINTS_EACH = 20
SICK = Device(
    "sick",
    "ssh",
    max_transport_failures=3,
    recovery_after_s=0.01,
    give_up_after_s=0.02,
    resource_group="rack",
    group_max_concurrency=2,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def sweep(root: Path, names: list[str], count: int, **sick: Any) -> tuple[Plan, Any]:
    devices = [replace(SICK, id=name, **(sick if name == "sick" else {})) for name in names]
    points = [command("true", parameters={"i": i}, device=name) for i in range(count) for name in names]
    plan = make_plan(root, points, devices=devices)
    return plan, run(root, plan)


def outcomes(plan: Plan, told: Any, device: str) -> set[str]:
    return {told.done[root, run_id] for root, run_id in told.done if plan.points[run_id].device == device}


@pytest.mark.parametrize("names", [["a", "sick", "b"], ["a", "sick"]], ids=["of three", "of two"])
@pytest.mark.parametrize("how", ["unfit", "transport"])
def test_a_sick_member_of_a_group_burns_nothing_of_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], how: str
) -> None:
    machines = scripted(monkeypatch, *names)
    sick = machines["sick"]
    # These machines keep no run alive, and the sick one is given up within milliseconds: with the lease of real ones a
    # start that may be on its way to it would keep its turn of the rack for a minute, as it must.
    monkeypatch.setattr(dispatch, "OUTLIVES_S", 0.0)
    if how == "unfit":
        sick.unfit = "/tmp: permission denied"
    else:
        sick.refuse += ["start"] * 1000
    plan, told = sweep(root, names, POINTS_EACH)
    for name in names:
        assert outcomes(plan, told, name) == ({"hole"} if name == "sick" else {"ok"})
        assert len(machines[name].ran) == (0 if name == "sick" else POINTS_EACH)
    downs = [event for event in told.events if event["kind"] == "down"]
    assert {event["device"] for event in downs} == {"sick"}
    if how == "unfit":
        assert len(downs) == 1
        assert sick.asked["start"] == 0
    else:
        trials = sick.asked["probe"]  # one probe, then one trial point
        assert sick.asked["start"] <= SICK.max_transport_failures + trials
    words = "permission denied" if how == "unfit" else "taken out of service"
    holes = [record(root, plan, run_id) for run_id, point in plan.points.items() if point.device == "sick"]
    assert all(words in hole["error"] or "attempt(s) on sick" in hole["error"] for hole in holes)
    assert all(hole["failure"]["class"] == "not_attempted" for hole in holes)


@pytest.mark.parametrize("how", ["unfit", "transport"])
def test_a_single_device_with_a_single_point_ends_and_says_why(
    root: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    machine = scripted(monkeypatch, "sick")["sick"]
    if how == "unfit":
        machine.unfit = "/tmp: permission denied"
    else:
        machine.down = True
    plan, told = sweep(root, ["sick"], 1)
    assert list(told.done.values()) == ["hole"]
    (hole,) = (record(root, plan, run_id) for run_id in plan.points)
    assert ("permission denied" if how == "unfit" else "no route to host") in hole["error"]


def test_when_every_route_is_out_the_run_says_so_and_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = scripted(monkeypatch, "a", "sick")
    for machine in machines.values():
        machine.down = True
    _, told = sweep(root, ["a", "sick"], 5)
    assert set(told.done.values()) == {"hole"}
    assert {event["device"] for event in told.events if event["kind"] == "down"} == {"a", "sick"}


def test_the_units_of_a_sick_device_run_elsewhere_where_that_is_declared(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = scripted(monkeypatch, "a", "sick")
    machines["sick"].unfit = "/tmp: permission denied"
    plan, _ = sweep(root, ["a", "sick"], 5, failover_to=("a",))
    assert len(machines["a"].ran) == 10
    assert all("moved_to" in record(root, plan, r) for r, point in plan.points.items() if point.device == "sick")
