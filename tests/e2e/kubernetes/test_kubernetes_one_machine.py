"""Pods of one node and the node's own host: one machine, which a person is told where they take no turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.kubernetes.helpers_cluster import Namespace
from e2e.kubernetes.helpers_pods import connect, first_node
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command, record
from sidewinder.engine import greeting
from sidewinder.model import Device


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "GREET_S", 60.0)  # this machine may be busy with other tests


def devices_of(namespace: Namespace, tmp_path: Path, group: str | None) -> list[Device]:
    on = first_node(namespace)
    devices = [namespace.device(name, cpu="100m", memory="64Mi", node_name=on) for name in ("small", "other")]
    devices.append(Device("host", "local", settings={"state_dir": str(tmp_path / "agent")}))
    return [replace(device, resource_group=group) for device in devices]


def points(devices: list[Device]) -> list[dict[str, object]]:
    return [command("sh", "-c", "echo n=1", metrics={"n": r"n=(\d)"}, device=device.id) for device in devices]


@pytest.mark.parametrize("beforehand", [True, False], ids=["pods-that-are-there", "pods-to-be-made"])
def test_what_is_one_machine_is_told(beforehand: bool, namespace: Namespace, tmp_path: Path, begin: Begin) -> None:
    devices = devices_of(namespace, tmp_path, None)
    for device in devices:
        if beforehand and device.kind == "kubernetes":
            connect(device)
    sweep = begin(points(devices), *devices)
    assert set(sweep.wait().values()) == {"ok"}
    kinds = [event["kind"] for event in sweep.told.events]
    said = [event["message"] for event in sweep.told.events if "SAME MACHINE" in str(event.get("message"))]
    assert said, sweep.told.events
    found = {
        point.device: record(sweep.root, sweep.plan, run_id)["device"] for run_id, point in sweep.plan.points.items()
    }
    node = found["small"]["pod"]["node"]
    assert found["other"]["pod"]["node"] == node
    one = {"small", "other", *(["host"] if found["host"]["boot_id"] == found["small"]["boot_id"] else [])}
    for name in found:
        shown = f"{name} (a pod on {node})" if name != "host" else name
        assert (shown in said[-1]) is (name in one), "the nodes of a cluster need not be this machine"
    assert f"they share the machine of {node}" in said[-1]
    if beforehand:
        assert len(said) == 1
        assert kinds.index("warning") < kinds.index("started"), "before anything is measured"


def test_who_takes_turns_across_kinds_is_told_nothing(namespace: Namespace, tmp_path: Path, begin: Begin) -> None:
    devices = devices_of(namespace, tmp_path, "silicon")
    sweep = begin(points(devices), *devices)
    assert set(sweep.wait().values()) == {"ok"}
    assert not [event for event in sweep.told.events if "SAME MACHINE" in str(event.get("message"))]
