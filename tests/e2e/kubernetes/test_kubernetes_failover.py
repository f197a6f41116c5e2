"""Failover between kinds, as the lab declares it: from a pod that cannot be had to another pod, and to a host."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from e2e.kubernetes.helpers_cluster import Namespace
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command, record
from sidewinder.model import Device


def point(device: Device, i: int) -> dict[str, Any]:
    return command("sh", "-c", "echo n=1", metrics={"n": r"n=(\d)"}, device=device.id, parameters={"i": i})


def test_from_a_pod_to_the_first_stand_in_that_can_be_had_of_whatever_kind(
    namespace: Namespace, tmp_path: Path, begin: Begin
) -> None:
    host = Device("host", "local", settings={"state_dir": str(tmp_path / "agent")})
    spare = namespace.device("spare", cpu="100m", memory="64Mi")
    full = namespace.device("full", cpu="4000", ready_timeout_s=5.0)  # a stand-in that no node has room for
    broken = namespace.device("broken", image="k8s.local/nobody:has-this", image_pull_policy="Never")
    to_host, to_pod = (
        replace(broken, id="to-host", failover_to=("full", "host")),
        replace(broken, id="to-pod", failover_to=("spare", "host")),
    )
    devices = [host, spare, full, to_host, to_pod]
    sweep = begin([point(to_host, 1), point(to_host, 2), point(to_pod, 1)], *devices)
    assert set(sweep.wait().values()) == {"hole"}

    for run_id, planned in sweep.plan.points.items():
        original = record(sweep.root, sweep.plan, run_id)
        took = "host" if planned.device == "to-host" else "spare"
        copy = json.loads((sweep.root / "records" / took / f"{original['moved_to']}.json").read_text())
        assert (copy["status"], copy["metrics"]["n"]) == ("ok", 1)
        assert copy["device"]["kind"] == ("local" if took == "host" else "kubernetes")
        assert f"failover-from:{planned.device}" in copy["tags"]
        assert copy["identity"]["failover_from"] == planned.device
        assert copy["run_id"] not in sweep.plan.points
    refused = [line for line in sweep.lines if line["event"] == "move_refused"]
    assert {line["to_device"] for line in refused} == {"full"}
    assert all("not ready within 5 s" in line["error"] for line in refused)
    assert any(event["kind"] == "waiting" and event["device"] == "full" for event in sweep.told.events)
    assert not (sweep.root / "records/full").exists()
