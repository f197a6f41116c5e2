"""What ran: the limits that a run really lived under, and what becomes of a point when they are not those asked for."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace, until
from e2e.kubernetes.helpers_pods import refused
from e2e.kubernetes.helpers_sweeps import POLICY, Begin, begun, held, inside, let_go
from engine.helpers_engine import Told, command, make_plan, record
from sidewinder import cli, report
from sidewinder.engine import Engine
from sidewinder.errors import DeviceFault
from sidewinder.model import Device, Plan
from sidewinder.transports.kubernetes_errors import Refused

QUOTA = """
import os
v1, v2 = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"
print(open(v1).read().strip() if os.path.exists(v1) else open(v2).read().split()[0])
"""
# Uses up its quota until the kernel has held it back for some periods, however busy the node is.
BUSY = """
import os, time
v1, v2 = "/sys/fs/cgroup/cpu/cpu.stat", "/sys/fs/cgroup/cpu.stat"
def throttled():
    lines = open(v1 if os.path.exists(v1) else v2).read().splitlines()
    return int(dict(line.split() for line in lines)["nr_throttled"])
first, end_s = throttled(), time.monotonic() + 60
while throttled() < first + 5 and time.monotonic() < end_s:
    sum(range(100000))
print("n=1")
"""


def resize(namespace: Namespace, cpu: str, name: str = "sidewinder-k8s") -> None:
    """As `kubectl patch --subresource resize` does; back when the new quota holds inside."""

    def ask() -> bool:
        pod = copy.deepcopy(namespace.pod(name))
        for kind in ("limits", "requests"):
            pod["spec"]["containers"][0]["resources"][kind]["cpu"] = cpu
        try:
            namespace.api("PUT", f"{namespace.path}/pods/{name}/resize", pod)
        except Refused as error:
            if error.status != 409:  # its status changed meanwhile
                raise
            return False
        return True

    until(ask, f"it is resized to {cpu}")
    wanted = str(int(cpu.removesuffix("m")) * 100)
    until(lambda: inside(namespace, QUOTA, name).strip() == wanted, f"{cpu} holds inside")


class Kept:
    """An engine that gets its points one by one, over one link."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan, self.told = root, plan, Told()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(root), plan)

    def measures(self, run_id: str) -> dict[str, Any]:
        self.engine.submit([(str(self.root), run_id)])
        key = (str(self.root), run_id)
        until(lambda: key in self.told.done or self.told.crash, f"{run_id} is over", 2 * PATIENCE_S)
        assert self.told.crash is None
        found: dict[str, Any] = record(self.root, self.plan, run_id)
        return found


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Any]:
    made: list[Kept] = []

    def keep(points: list[dict[str, Any]], device: Device) -> Kept:
        made.append(Kept(tmp_path / "kept", make_plan(tmp_path / "kept", points, devices=[device], policy=POLICY)))
        return made[-1]

    yield keep
    for one in made:
        one.engine.shutdown(20)


def test_limits_and_neighbours_of_a_busy_and_of_an_unlimited_pod(namespace: Namespace, begin: Begin) -> None:
    neighbour = {"name": "c", "image": namespace.cluster.image, "imagePullPolicy": namespace.cluster.pull_policy}
    neighbour |= {"command": ["sleep", "1000"], "resources": {"requests": {"cpu": "50m"}}}
    body = {"metadata": {"name": "neighbour"}, "spec": {"containers": [neighbour], "restartPolicy": "Never"}}
    namespace.api("POST", f"{namespace.path}/pods", body)
    node = until(lambda: namespace.pod("neighbour")["spec"].get("nodeName"), "the neighbour has a node")
    devices = [
        namespace.device("busy", cpu="200m", memory="64Mi", node_name=node),
        namespace.device("free", cpu=None, memory=None, node_name=node),
    ]
    points = [command("python3", "-c", BUSY, metrics={"n": r"n=(\d)"}, device="busy")]
    points.append(command("sh", "-c", "echo n=1", metrics={"n": r"n=(\d)"}, device="free"))
    sweep = begin(points, *devices)
    assert set(sweep.wait().values()) == {"ok"}
    records = {point.device: record(sweep.root, sweep.plan, run_id) for run_id, point in sweep.plan.points.items()}
    for written in records.values():
        pod = written["device"]["pod"]
        assert pod["node"] == node
        assert pod["node_others"]["pods"] >= 1
        assert pod["node_others"]["cpu_request_cores"] >= 0.05
        assert "changed_to" not in written["device"]["placement"]

    busy = records["busy"]
    group = busy["device"]["placement"]["cgroup"]
    assert (group["cpu_quota_us"], group["cpu_period_us"], group["memory_max_bytes"]) == (20_000, 100_000, 64 << 20)
    assert busy["device"]["pod"]["asked"] == {"cpu": "200m", "memory": "64Mi", "node_name": node}
    assert group["cpuset"]
    assert "unlimited" not in group
    counted, wall_s = busy["conditions"]["cgroup"], busy["conditions"]["wall_s"]
    assert 5 <= counted["throttled_periods"] <= counted["periods"]
    cores = busy["device"]["logical_cores"]
    assert 0 < counted["throttled_us"] / 1e6 <= cores * (wall_s + 0.2), "one core at a time, all of them in turn"
    assert busy["conditions"]["cpu_s"] <= 0.2 * wall_s + 0.1, (
        "the quota held: a fifth, and what was left of two periods"
    )

    free = records["free"]
    assert free["device"]["pod"]["qos"] == "BestEffort"
    assert free["device"]["pod"]["asked"] == {"node_name": node}
    assert free["device"]["placement"]["cgroup"]["unlimited"] == ["cpu", "memory"]
    assert not {"cpu_quota_us", "memory_max_bytes"} & free["device"]["placement"]["cgroup"].keys()
    assert "cpu_quota_cores" not in free["device"]["placement"]


def test_a_limit_that_a_limit_range_adds_makes_another_device(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = {"limits": [{"type": "Container", "default": {"memory": "256Mi"}, "defaultRequest": {"memory": "64Mi"}}]}
    body = {"metadata": {"name": "defaults"}, "spec": limits}
    namespace.api("POST", f"{namespace.path}/limitranges", body)
    said = refused(namespace.device(memory=None), DeviceFault)
    assert "devices.k8s.memory: asked is none, there is 256Mi" in said
    assert "devices.k8s.memory_request: asked is none, there is 64Mi" in said
    assert "LimitRange" in said
    assert "sidewinder devices down k8s" in said
    section = {**namespace.device(memory=None).settings, "kind": "kubernetes"}
    lab = {"devices": {"k8s": section}, "matrix": [{"devices": "k8s", "backend": "noop"}]}
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(lab))
    for command_line, code in ((["up"], 1), (["down", "k8s"], 0)):
        assert cli.main(["devices", *command_line, "--configfile", str(tmp_path / "lab.yaml")]) == code
    assert "devices.k8s.memory: asked is none, there is 256Mi" in capsys.readouterr().err


def test_a_pod_that_was_there_must_be_what_the_config_says_of_it(namespace: Namespace) -> None:
    namespace.make_pod("theirs")
    until(lambda: namespace.pod("theirs")["status"].get("phase") == "Running", "it runs")
    there = namespace.pod("theirs")["spec"]["nodeName"]
    foreign = {"image": None, "cpu": None, "memory": None, "pod": "theirs", "container": "c"}
    said = refused(namespace.device(**{**foreign, "node_name": "elsewhere"}), DeviceFault)
    assert f"devices.k8s.node_name: asked is elsewhere, there is {there}" in said
    said = refused(namespace.device(**{**foreign, "cpu": "300m", "node_name": there}), DeviceFault)
    assert "devices.k8s.cpu: asked is 300m, there is none" in said


def test_a_device_that_ran_on_two_nodes_is_two_series_in_the_report(namespace: Namespace, keep: Any) -> None:
    """The pod is somebody else's, who made it anew on another node between two points."""
    nodes = [node["metadata"]["name"] for node in namespace.api("GET", "/api/v1/nodes")["items"]][:2]
    if len(nodes) < 2:
        pytest.skip("needs a cluster of two nodes")
    foreign = {"image": None, "cpu": None, "memory": None, "pod": "theirs", "container": "c", "workdir": "/tmp/s"}
    points = [
        command("sh", "-c", "echo n=1", metrics={"n": r"n=(\d)"}, device="k8s", parameters={"i": n}) for n in (1, 2)
    ]
    for i, node in enumerate(nodes):
        namespace.delete_pod("theirs", grace_s=0)
        until(lambda: namespace.pod("theirs") is None, "it is gone")
        namespace.make_pod("theirs", nodeName=node)
        until(lambda: namespace.pod("theirs")["status"].get("phase") == "Running", f"it runs on {node}")
        # with a link of its own: the container of a pod that is gone lives on for a moment, and would be measured in
        kept = keep(points, namespace.device(**foreign))
        assert kept.measures([*kept.plan.points][i])["device"]["pod"]["node"] == node
        assert kept.engine.shutdown(30)
    report.build(str(kept.root), kept.plan)
    page = (kept.root / "summary" / "report.html").read_text()
    assert f"2 NODES: the points of k8s ran on {nodes[0]} (1 point) and {nodes[1]} (1 point)" in page
    assert all(f"k8s on {node}" in page for node in nodes)


def test_a_pod_that_is_resized_between_two_points(namespace: Namespace, keep: Any) -> None:
    device = namespace.device()
    points = [command("sh", "-c", f"echo n={n}", metrics={"n": r"n=(\d)"}, device="k8s") for n in range(2)]
    kept = keep(points, device)
    first, second = kept.plan.points
    assert kept.measures(first)["status"] == "ok"
    resize(namespace, "250m")
    written = kept.measures(second)
    assert (written["status"], written["failure"]["class"]) == ("failed", "not_attempted")
    assert written["failure"]["evidence"]["cause"] == "device"
    assert "devices.k8s.cpu: asked is 500m, there is 0.25 CPUs (25000 us of every 100000 us)" in written["error"]
    assert "sidewinder devices down k8s" in written["error"]
    assert "n" not in written["metrics"], "what it printed is no result"
    assert written["attempts"][0]["evidence"]["limits"]["before"]["cpu_quota_us"] == 25_000, "what it rests on"
    said = refused(device, DeviceFault)  # and whoever connects anew is told before anything runs
    assert "devices.k8s.cpu: asked is 500m, there is 250m" in said
    assert "it was changed after it was made, as by a resize: generation 2" in said
    assert kept.engine.shutdown(30)
    resize(namespace, "500m")  # a person mends it, and runs the same command
    again = keep(points, device)
    assert again.measures(second)["status"] == "ok", "what was measured in the wrong pod says nothing of the mended one"


def test_a_pod_that_is_resized_during_a_run(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device()
    sweep = begin([held(device)], device)
    sweep.until_begun()
    until(lambda: begun(namespace) == 1, "it runs")
    resize(namespace, "250m")
    let_go(namespace)
    assert set(sweep.wait().values()) == {"hole"}
    written = sweep.record
    first, second = written["attempts"]
    assert (first["outcome"], first["class"]) == ("lost", "preempted")
    assert "were changed during the run (CPU quota in cores 0.5 -> 0.25" in first["error"]
    assert first["evidence"]["limits"]["after"]["cpu_quota_us"] == 25_000
    assert (second["outcome"], second["class"]) == ("lost", "device")
    assert "asked is 500m" in written["error"]


def test_a_pod_that_is_resized_and_resized_back_during_a_run(namespace: Namespace, begin: Begin) -> None:
    """Before and after it was the right one: the kernel told the runner of what was between."""
    device = namespace.device()
    sweep = begin([held(device)], device)
    sweep.until_begun()
    until(lambda: begun(namespace) == 1, "it runs")
    resize(namespace, "300m")
    resize(namespace, "500m")
    let_go(namespace)
    assert set(sweep.wait().values()) == {"ok"}
    assert sweep.attempts == [(1, "lost"), (2, "ok")]
    first = sweep.record["attempts"][0]
    assert first["class"] == "preempted"
    assert "changed and changed back" in first["error"]
    assert first["evidence"]["limits"]["during"]["cpu_quota_us"] == 30_000
    assert sweep.record["device"]["placement"]["cpu_quota_cores"] == 0.5
    assert "preempted" in sweep.ledger
