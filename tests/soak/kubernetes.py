"""`make soak-kubernetes`: a long sweep on three pods of two nodes while everything happens that befalls pods.

As ``tests.soak``, on a cluster that it starts and takes down by itself (a person's cluster is never used): ``SEED=``,
``POINTS=`` (500), ``FOLDER=``; ``python -m tests.soak FOLDER`` reads the evidence again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from e2e.kubernetes.helpers_cluster import OPT_IN, TestCluster, cluster, script
from soak import night
from soak import pods as of_pods
from soak.pods import DEVICES, EVICTED_SOON, GROUP, HOME, IDLE_S, MENDS_S, NODES, PodChaos, Pods
from soak.sweep import WITNESS, Sweep

POINTS = 500
PATIENCE_S = 3.0
LONGEST_S = 3.0
LONG_SHARE = 0.05  # which go on while another pod is made
SHARES = {"k3": 2}  # it has a turn to itself
IDLE_PATIENCE_S = 60.0  # more than the time-out, until the cluster tells that the pod is over


def soak_on(
    one: TestCluster,
    folder: Path,
    seed: int,
    points: int,
    *,
    nodes: tuple[str, ...] = NODES,
    longest_s: float = LONGEST_S,
    long_share: float = LONG_SHARE,
    idles: bool = True,
    **chaos_of: Any,
) -> list[str]:
    """The sweep and its bad luck; leaves the evidence in ``folder``. What could not be dealt."""
    with one.namespace() as namespace:
        pods = Pods(namespace)
        devices = of_pods.devices_of(namespace, folder / "pods", nodes)
        sweep = Sweep(
            folder, devices, HOME, seed=seed, points=points, longest_s=longest_s, shares=SHARES, long_share=long_share
        )
        chaos = PodChaos(pods, sweep, seed, nodes=nodes, **chaos_of)
        night.spend(sweep, chaos, patience_s=PATIENCE_S)
        left = of_pods.left_in(pods)
        if idles:
            left["k3"] += of_pods.left_after_idling(pods, "k3", IDLE_S + IDLE_PATIENCE_S)
        left["cluster"] = of_pods.left_after_cleaning(pods, sweep)
        settings = {
            "hosts": DEVICES,
            "group": GROUP,
            "nodes": NODES,
            "pinned": {name: device["node_name"] for name, device in devices.items() if "node_name" in device},
            "evicted_soon": EVICTED_SOON,
            "mends_s": MENDS_S,
        }
        witness = {name: folder / "pods" / name / WITNESS for name in DEVICES}
        night.leave(sweep, chaos, seed=seed, settings=settings, witness=witness, left=left)
        return chaos.errors


def soak(folder: Path, seed: int, points: int) -> None:
    with cluster("soak") as one:
        if soak_on(one, folder, seed, points):
            raise SystemExit(2)


def main() -> int:
    os.environ.pop(OPT_IN, None)  # nodes are hurt: never a person's cluster
    if len(sys.argv) == 1 and (script() is None or os.geteuid() != 0):
        print("this takes root, and a program beside the project that starts a cluster of ours", file=sys.stderr)
        return 2
    return night.command("soak-kubernetes", POINTS, soak)


if __name__ == "__main__":
    sys.exit(main())
