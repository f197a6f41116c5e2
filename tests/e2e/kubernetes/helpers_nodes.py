"""Runs on a node that is hurt: their traces lie in a folder of this machine, which all nodes of a cluster of our own
can reach, so that it is seen what ran when, whatever became of node and link.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, TestCluster, until
from e2e.kubernetes.helpers_sweeps import Sweep
from e2e.kubernetes.helpers_witness import programs, witnessed
from engine.helpers_engine import record
from netns.controller import quicken
from netns.lab_hosts import Execution, Witness
from sidewinder.engine import dispatch, linkloss
from sidewinder.model import Device
from sidewinder.transports import kubernetes_lives

TRACES = "/traces"
AWAY = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
PREFERS_NODE2 = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node2"]}]},
            }
        ]
    }
}


class Node2:
    """The node that is hurt, a device on it, and what ran there."""

    def __init__(self, cluster: TestCluster, namespace: Namespace, folder: Path) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.folder = folder / "witness"
        self.folder.mkdir(mode=0o777)
        self.witness = Witness(self.folder)
        self._volumes = [programs(namespace), {"mount_path": TRACES, "host_path": str(self.folder)}]

    def device(self, name: str = "k8s", **settings: Any) -> Device:
        """Pinned to the node, unless ``affinity`` says otherwise."""
        where = {} if "affinity" in settings else {"node_name": "node2"}
        return self.namespace.device(name, volumes=self._volumes, **where, **settings)

    def point(self, device: Device, run: str = "run", how_long: float | str = "hold") -> dict[str, Any]:
        return witnessed(device, run, how_long, TRACES)

    def __call__(self, action: str) -> None:
        self.cluster.node("node2", action)

    def until_away(self) -> None:
        until(lambda: not self.cluster.has_ready("node2"), "the cluster takes node2 for lost")

    def until_runs(self, times: int, sweep: Sweep) -> Execution:
        def does() -> bool:
            return len(self.witness.executions) >= times or sweep.told.crash is not None

        try:
            until(does, f"execution {times} runs")
        except AssertionError as error:
            raise AssertionError(f"{error}; told: {sweep.told.events[-8:]}") from error
        if sweep.told.crash is not None:
            raise sweep.told.crash
        return self.witness.executions[-1]


def tolerations(seconds: int) -> list[dict[str, Any]]:
    """How long a pod stays on a node that is away before the cluster takes it off."""
    return [{"key": key, "operator": "Exists", "effect": "NoExecute", "toleration_seconds": seconds} for key in AWAY]


def quick_lease(monkeypatch: pytest.MonkeyPatch, lease_s: float = 10.0) -> None:
    """A run outlives its link for a sixth of the usual time, and everybody reckons with that."""
    quicken(lease_s=lease_s, setter=monkeypatch.setattr)
    for module in (dispatch, linkloss, kubernetes_lives):
        monkeypatch.setattr(module, "OUTLIVES_S", lease_s + 10.0)


def story(sweep: Sweep) -> str:
    """What happened, for messages of tests that fail."""
    records = [record(sweep.root, sweep.plan, one) for one in sweep.plan.points]
    told = {"lines": sweep.lines, "attempts": [one.get("attempts") for one in records]}
    return json.dumps({**told, "warnings": [one.get("warnings") for one in records]}, indent=1)


def lost_then_measured(node2: Node2, sweep: Sweep) -> dict[str, Any]:
    """The first run came to no end, the second began after the last that is known of it; what is said of the first."""
    told = story(sweep)
    first, second = node2.witness.executions
    assert (first.complete, second.complete) == (False, True)
    assert first.last_s < second.start_s, told
    assert sweep.attempts == [(1, "lost"), (2, "ok")], told
    lost: dict[str, Any] = sweep.record["attempts"][0]
    told_of = {"transport": "repeat", "preempted": "preempted"}[lost["class"]]
    assert [line["evidence"] for line in sweep.lines if line["event"] == told_of] == [lost["evidence"]]
    return lost
