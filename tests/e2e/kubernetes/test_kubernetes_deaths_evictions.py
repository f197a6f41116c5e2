"""Pods that are taken away during a run: evicted, preempted, deleted. Each says so in its own words."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, TestCluster, until
from e2e.kubernetes.helpers_deaths import check_repeat, evict, held_in, let_go_in_a_new_pod, wait_for
from e2e.kubernetes.helpers_sweeps import Begin, held
from sidewinder.transports.kubernetes_errors import Refused


def test_an_eviction_is_no_failure_of_the_device(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device()
    sweep = begin([held(device)], device)
    first = held_in(namespace, sweep)
    evict(namespace)
    let_go_in_a_new_pod(namespace, first)
    assert wait_for(sweep) == "ok"
    evidence = check_repeat(sweep, "evicted", "preempted")
    assert evidence["disruption"] == "EvictionByEvictionAPI"
    assert evidence["proof"] in ("container", "front")


def test_a_pod_that_somebody_deletes_is_a_failure_on_the_way(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device()
    sweep = begin([held(device)], device)
    first = held_in(namespace, sweep)
    namespace.delete_pod()  # with its grace period; by force: test_kubernetes_engine.py
    let_go_in_a_new_pod(namespace, first)
    assert wait_for(sweep) == "ok"
    evidence = check_repeat(sweep, "deleted", "transport")
    assert evidence["proof"] in ("container", "front")


@pytest.fixture
def seat(test_cluster: TestCluster) -> Iterator[str]:
    """An extended resource of which one node has one: whoever takes it from a pod takes it from ours alone."""
    name = f"example.com/seat-{secrets.token_hex(4)}"
    node = sorted(one["metadata"]["name"] for one in test_cluster.api("GET", "/api/v1/nodes")["items"])[0]

    def seats(count: str | None) -> bool:
        found = test_cluster.api("GET", f"/api/v1/nodes/{node}")
        for table in (found["status"]["capacity"], found["status"]["allocatable"]):
            table.pop(name, None)
            if count is not None:
                table[name] = count
        try:
            test_cluster.api("PUT", f"/api/v1/nodes/{node}/status", found)
        except Refused as error:  # 409: its kubelet wrote at the same moment
            if error.status != 409:
                raise
            return False
        return True

    until(lambda: seats("1"), "there is a seat")
    yield name
    until(lambda: seats(None), "there is none")


@pytest.fixture
def high(test_cluster: TestCluster) -> Iterator[str]:
    name = f"sidewinder-test-{secrets.token_hex(4)}"
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    test_cluster.api("POST", path, {"metadata": {"name": name}, "value": 1000})
    yield name
    test_cluster.api("DELETE", f"{path}/{name}")


def test_a_higher_priority_takes_the_place(namespace: Namespace, begin: Begin, seat: str, high: str) -> None:
    """The point is queued again at once, and its device waits for room: it is not what the breaker is for."""
    device = namespace.device(resources={seat: "1"})
    sweep = begin([held(device)], device)
    first = held_in(namespace, sweep)
    container = {
        "name": "c",
        "image": namespace.cluster.image,
        "imagePullPolicy": namespace.cluster.pull_policy,
        "command": ["sleep", "600"],
        "resources": {"limits": {seat: "1"}},
    }
    namespace.make_pod("important", priorityClassName=high, containers=[container])
    until(lambda: "preempted" in sweep.ledger, f"it is queued again; {sweep.told.events[-8:]}")
    sweep.until_said("Unschedulable")
    namespace.delete_pod("important", grace_s=0)
    let_go_in_a_new_pod(namespace, first)
    assert wait_for(sweep) == "ok"
    evidence = check_repeat(sweep, "preempted", "preempted")
    assert evidence["disruption"] == "PreemptionByScheduler"
