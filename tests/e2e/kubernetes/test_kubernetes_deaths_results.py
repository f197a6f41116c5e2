"""Pods that end because of what a run in them did: that is its result, measured once. And one that nobody missed."""

from __future__ import annotations

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_deaths import GREEDY, check_result, held_in, wait_for
from e2e.kubernetes.helpers_sweeps import Begin, held, inside
from engine.helpers_engine import command, record

# More than it may, and on it goes: the kubelet looks every ten seconds.
WRITES = (
    "import time\n"
    "with open('/tmp/big', 'wb') as file:\n"
    "    for _ in range(256): file.write(bytes(1 << 20))\n"
    "time.sleep(600)\n"
)


def test_a_container_that_passes_its_memory_limit(namespace: Namespace, begin: Begin) -> None:
    """As every OOM is on cgroup v2, where a container dies as one. Here its first process does it."""
    container = {
        "name": "agent",
        "image": namespace.cluster.image,
        "imagePullPolicy": namespace.cluster.pull_policy,
        "command": ["python3", "-c", GREEDY],
        "resources": {"limits": {"cpu": "300m", "memory": "96Mi"}},
        "volumeMounts": [{"name": "state", "mountPath": "/sidewinder"}],
    }
    namespace.make_pod("sidewinder-k8s", containers=[container], volumes=[{"name": "state", "emptyDir": {}}])
    device = namespace.device(image=None, pod="sidewinder-k8s", cpu=None, memory=None)
    sweep = begin([held(device)], device)
    held_in(namespace, sweep)
    inside(namespace, "open('/sidewinder/eat', 'w')")
    assert wait_for(sweep) == "failed"
    evidence = check_result(sweep, "out_of_memory", "memory")
    assert (evidence["container_reason"], evidence["exit_code"]) == ("OOMKilled", 137)
    assert "96Mi" in sweep.record["failure"]["message"], "the limit that it met"
    # The end of a container is told before its next life is.
    until(lambda: namespace.pod()["status"]["containerStatuses"][0]["restartCount"] == 1, "the pod lives on")


def test_a_run_that_writes_more_than_its_pod_may(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device(ephemeral_storage="64Mi")
    sweep = begin([command("python3", "-c", WRITES, metrics={"n": r"n=(\d)"}, device="k8s")], device)
    assert wait_for(sweep) == "failed"
    evidence = check_result(sweep, "storage_limit", "measurement")
    assert (evidence["phase"], evidence["reason"]) == ("Failed", "Evicted")
    assert "disruption" not in evidence, "the node was not short of anything"
    message = sweep.record["failure"]["message"]
    assert "64Mi" in message
    assert "ephemeral_storage" in message, "what to raise"


def test_a_container_that_is_restarted_between_two_points(namespace: Namespace, begin: Begin) -> None:
    """Nobody loses anything: the second point runs in the new container, and both records say where they ran."""
    device = namespace.device()
    points = [command("echo", f"n={n}", metrics={"n": r"n=(\d)"}, device="k8s", parameters={"i": n}) for n in (1, 2)]
    sweep = begin(points[:1], device)
    assert wait_for(sweep) == "ok"
    first = record(sweep.root, sweep.plan, next(iter(sweep.plan.points)))
    inside(namespace, "import os, signal; os.kill(1, signal.SIGTERM)")
    until(lambda: namespace.pod()["status"]["containerStatuses"][0]["restartCount"] == 1, "it is restarted")
    sweep = begin(points, device)
    assert set(sweep.wait().values()) == {"ok"}
    written = [record(sweep.root, sweep.plan, run_id) for run_id in sweep.plan.points]
    assert [len(one["attempts"]) for one in written] == [1, 1]
    assert first["device"]["pod"]["container_id"] != written[1]["device"]["pod"]["container_id"]
    assert first["device"]["pod"]["uid"] == written[1]["device"]["pod"]["uid"]
