"""An admission webhook of the cluster that refuses our pod, or does not answer: a real one, asked by the API server."""

from __future__ import annotations

from dataclasses import replace

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import Begin
from e2e.kubernetes.helpers_webhook import SAYS, Hook
from engine.helpers_engine import LOCAL, command, record

POD = "sidewinder-k8s"


def test_a_webhook_that_refuses_the_pod_is_heard_once(namespace: Namespace, begin: Begin) -> None:
    hook = Hook(namespace)
    with hook.asked("deny"):
        sweep = begin([command("true", device="k8s"), command("true")], namespace.device(), LOCAL)
        outcomes = sweep.wait()
        assert hook.names().count(POD) == 1, "asking again would change nothing"
    by_device = {sweep.plan.points[run_id].device: run_id for run_id in outcomes}
    assert {device: outcomes[run_id] for device, run_id in by_device.items()} == {"k8s": "hole", "local": "ok"}
    failure = record(sweep.root, sweep.plan, by_device["k8s"])["failure"]
    assert failure["evidence"]["cause"] == "device"
    for word in ("'k8s'", namespace.name, "hours.lab.example", SAYS, "admission webhook", "devices.k8s"):
        assert word in failure["message"]


def test_a_webhook_that_does_not_answer_is_asked_again_until_it_does(namespace: Namespace, begin: Begin) -> None:
    hook = Hook(namespace)
    device = replace(namespace.device(), recovery_after_s=1.0)
    with hook.asked("silent"):
        sweep = begin([command("true", device="k8s")], device)
        until(lambda: "transport_failure" in sweep.ledger, f"it fails on the way: {sweep.told.events[-8:]}")
        assert hook.names().count(POD) >= 5, "repeated before it is given up for a while"
    assert list(sweep.wait().values()) == ["ok"]
    failures = [line for line in sweep.lines if line["event"] == "transport_failure"]
    assert "could not be created just now" in failures[0]["error"]
    assert "hours.lab.example" in failures[0]["error"]
