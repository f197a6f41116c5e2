"""Sweeps in pods of a real cluster: what is measured, what the record knows, and what a bad day costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace, until
from e2e.kubernetes.helpers_sweeps import POLICY, Begin, begun, held, inside, let_go
from engine.helpers_engine import command, make_plan, only, record

CONTROLLER = Path(__file__).parents[2] / "engine" / "controller_script.py"


def test_a_sweep_on_three_pods_and_what_its_records_know(namespace: Namespace, begin: Begin) -> None:
    devices = [
        namespace.device("small", cpu="250m"),
        namespace.device("half"),
        namespace.device("free", cpu=None, memory=None),
    ]
    points = [
        command("sh", "-c", f"echo n={n}", metrics={"n": r"n=(\d)"}, device=device.id, parameters={"i": n})
        for device in devices
        for n in range(4)
    ]
    sweep = begin(points, *devices)
    assert set(sweep.wait().values()) == {"ok"}
    for run_id, point in sweep.plan.points.items():
        written = record(sweep.root, sweep.plan, run_id)
        device, pod = written["device"], written["device"]["pod"]
        assert device["kind"] == "kubernetes"
        assert written["metrics"]["n"] == point.parameters["i"]
        assert pod["namespace"] == namespace.name
        there = namespace.pod(pod["name"])
        status = there["status"]["containerStatuses"][0]
        assert pod["uid"] == there["metadata"]["uid"]
        assert (pod["node"], pod["container_id"]) == (there["spec"]["nodeName"], status["containerID"])
        assert (pod["image_id"], pod["restarts"]) == (status["imageID"], 0)
        assert pod["node_info"]["kubelet"].startswith("v1.")
        quota = device["placement"].get("cpu_quota_cores")
        assert (pod["qos"], pod.get("asked", {}).get("cpu"), quota) == {
            "small": ("Guaranteed", "250m", 0.25),
            "half": ("Guaranteed", "500m", 0.5),
            "free": ("BestEffort", None, None),
        }[point.device]
    assert not sweep.ledger


def test_a_child_that_takes_too_much_memory_is_a_result(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device(memory="96Mi")
    eats = command("python3", "-c", "x = bytearray(400 << 20); print('n=1')", metrics={"n": r"n=(\d)"}, device="k8s")
    sweep = begin([eats], device)
    assert set(sweep.wait().values()) == {"failed"}
    written = sweep.record
    assert written["failure"]["class"] == "memory"
    assert [attempt["n"] for attempt in written["attempts"]] == [1], "measured once"
    assert namespace.pod()["status"]["phase"] == "Running"


def test_a_pod_that_is_deleted_during_a_run(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device()
    sweep = begin([held(device)], device)
    sweep.until_begun()
    first = until(lambda: begun(namespace) and namespace.pod(), "it runs")
    namespace.delete_pod(grace_s=0)
    until(lambda: (namespace.pod() or first)["metadata"]["uid"] != first["metadata"]["uid"], "it is made anew")
    until(lambda: (namespace.pod()["status"].get("phase")) == "Running", "and runs")
    let_go(namespace)
    assert set(sweep.wait().values()) == {"ok"}
    written = sweep.record
    assert [(attempt["n"], attempt["outcome"]) for attempt in written["attempts"]] == [(1, "lost"), (2, "ok")]
    assert written["device"]["pod"]["uid"] == namespace.pod()["metadata"]["uid"] != first["metadata"]["uid"]
    assert any("deleted" in line for line in (sweep.root / "retries.jsonl").read_text().splitlines())


def test_a_container_that_is_restarted_during_a_run_is_another_boot(namespace: Namespace, begin: Begin) -> None:
    """The pod's volume keeps the agent's state over it: only the container's identity tells that the run is lost."""
    device = namespace.device()
    sweep = begin([held(device)], device)
    sweep.until_begun()
    until(lambda: begun(namespace) == 1, "it runs")
    inside(namespace, "import os, signal; os.kill(1, signal.SIGTERM)")
    until(lambda: namespace.pod()["status"]["containerStatuses"][0]["restartCount"] == 1, "it is restarted")
    let_go(namespace)
    assert set(sweep.wait().values()) == {"ok"}
    written = sweep.record
    assert [(attempt["n"], attempt["outcome"]) for attempt in written["attempts"]] == [(1, "lost"), (2, "ok")]
    assert written["device"]["pod"]["restarts"] == 1
    assert begun(namespace) == 2


def test_a_controller_that_is_killed_and_comes_back(namespace: Namespace, tmp_path: Path) -> None:
    device = namespace.device()
    plan = make_plan(tmp_path / "runs", [held(device)], devices=[device], policy=POLICY)
    argv = [sys.executable, str(CONTROLLER), str(tmp_path / "runs")]
    first = subprocess.Popen(argv)
    try:
        until(lambda: namespace.pod() and begun(namespace) == 1, "it runs")
    finally:
        first.kill()
        first.wait()
    let_go(namespace)
    again = subprocess.run(argv, capture_output=True, check=True, timeout=PATIENCE_S)
    assert json.loads(again.stdout) == {only(plan): "ok"}
    written = record(tmp_path / "runs", plan, only(plan))
    assert [attempt["n"] for attempt in written["attempts"]] == [1]
    assert any("taken over" in warning for warning in written["warnings"])
    assert begun(namespace) == 1, "one execution"
