"""Pods of a soak: three devices on a cluster of our own, and every kind of bad luck that befalls a pod, its node or the
API server.

What they leave lies in folders of this machine that their nodes mount (``hostPath``): it outlives every pod and node,
and says by the cluster's own word on which node and in which pod a run was.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from e2e.kubernetes.helpers_cluster import Namespace
from sidewinder.errors import SidewinderError
from sidewinder.ids import pod_name
from sidewinder.transports.kubernetes_errors import Refused, Silent
from soak.chaos import Act, Chaos
from soak.sweep import GIVE_UP_S, RECOVERY_S, WITNESS, WORK, Sweep

NODES = ("node1", "node2")
PINNED = {"k1": "node1", "k2": "node2"}  # k3 runs where there is room
DEVICES = (*PINNED, "k3")
GROUP = tuple(PINNED)
HOME = "/soak"  # in each pod
EVICTED_SOON = ("k3",)  # their pods leave a node that is missed at once, the others' stay for five minutes
IDLE_S = 120.0  # of k3: the shortest that may be asked for
READY_S = 100.0
MENDS_S = 60.0  # until a pod is there again when its fault is over
GONE_S = 180.0
NOT_TOLD = (SidewinderError, Refused, Silent, aiohttp.ClientError, OSError, TimeoutError)  # no answer to a request
# how often, among a hundred faults of a pod, a node
POD_FAULTS = {
    "evicted": 20,
    "deleted": 13,
    "deleted at once": 17,
    "container killed": 15,
    "front killed": 13,
    "front frozen": 7,
    "runner killed": 15,
}
NODE_FAULTS = {
    "node cut": 30,
    "node cut for long": 8,
    "node cut, its pods deleted": 14,
    "kubelet killed": 20,
    "kubelet away": 8,
    "power cut of a node": 11,
    "node dead for long": 4,
    "node dead, its pods deleted": 5,
}
GAPS_S = {
    **dict.fromkeys(DEVICES, (10.0, 50.0)),
    **dict.fromkeys(NODES, (20.0, 80.0)),
    "cluster": (60.0, 180.0),
}
KILL_S = (60.0, 200.0)  # a controller must live longer than a lease, or nothing is ever known to be over
FIELDS = {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}


def devices_of(namespace: Namespace, folder: Path, nodes: tuple[str, ...] = NODES) -> dict[str, dict[str, Any]]:
    """The section of the lab: two that share their silicon, and one that is given up and fails over. ``folder``: where
    theirs lie out here; ``nodes``: all that may be used."""
    told = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in FIELDS.items()]
    gone = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    leaves = [{"key": key, "operator": "Exists", "effect": "NoExecute", "toleration_seconds": 5} for key in gone]
    devices: dict[str, dict[str, Any]] = {}
    for name in DEVICES:
        home = folder / name
        (home / WITNESS).mkdir(parents=True)
        shutil.copy(WORK, home)
        devices[name] = {
            "kind": "kubernetes",
            "kubeconfig": namespace.cluster.kubeconfig,
            "namespace": namespace.name,
            "image": namespace.cluster.image,
            "image_pull_policy": namespace.cluster.pull_policy,
            "volumes": [{"host_path": str(home), "mount_path": HOME}],
            "pod_template": {"spec": {"containers": [{"name": "agent", "env": told}]}},
            "recovery_after_s": RECOVERY_S,
            "give_up_after_s": "never",
            "ready_timeout_s": READY_S,
        }
    for name in GROUP:
        devices[name].update(resource_group="board", group_max_concurrency=1)
        devices[name]["node_name"] = PINNED[name] if len(nodes) > 1 else nodes[0]
    devices["k1"].update(cpu="500m", memory="128Mi")
    devices["k3"].update(cpu="1", cpu_request="300m", memory="128Mi", idle_timeout_s=IDLE_S, tolerations=leaves)
    devices["k3"].update(give_up_after_s=GIVE_UP_S, failover_to=GROUP[1])
    if len(nodes) == 1:
        devices["k3"]["node_name"] = nodes[0]
    return devices


class Inside(NamedTuple):
    """A process of a pod, by its pid out here."""

    pid: int
    parent: int
    first: bool  # of its container
    argv: tuple[str, ...]

    @property
    def is_agent(self) -> bool:
        return any('compile(s,"agent","exec")' in word for word in self.argv)


class Pods:
    """The pods of a soak, from outside: what runs in them whether the API server knows of it or not."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._cluster = Path(namespace.cluster.kubeconfig).parent.name

    def of(self, device: str) -> Any:
        """None: there is none, or the API server does not say."""
        try:
            return self.namespace.pod(pod_name(device))
        except NOT_TOLD:
            return None

    def all(self) -> list[Any]:
        found = self.namespace.api("GET", f"{self.namespace.path}/pods")
        return list(found["items"]) if found else []

    def on(self, node: str) -> list[str]:
        """The devices whose pods are there."""
        return [name for name in DEVICES if ((self.of(name) or {}).get("spec") or {}).get("nodeName") == node]

    def inside(self, uid: str, container: str = "*") -> list[Inside]:
        groups = Path("/sys/fs/cgroup/pids").glob(f"{self._cluster}-n*/kubepods/**/pod{uid}/{container}/cgroup.procs")
        return [one for group in groups for one in _processes(group)]

    def agents(self, device: str) -> tuple[list[Inside], list[Inside]]:
        """Fronts, which were called in from outside, and runners."""
        pod = self.of(device)
        found = [one for one in self.inside(pod["metadata"]["uid"]) if one.is_agent] if pod else []
        pids = {one.pid for one in self.inside(pod["metadata"]["uid"])} if pod else set()
        fronts = [one for one in found if one.parent not in pids]
        runners = [one for one in found if one.parent in pids and os.getsid(one.pid) == one.pid]
        return fronts, runners

    def first(self, device: str) -> list[Inside]:
        """The first process of the agent's container."""
        pod = self.of(device)
        for one in (pod or {}).get("status", {}).get("containerStatuses", ()):
            found = self.inside(pod["metadata"]["uid"], one.get("containerID", "").rpartition("/")[2] or "none")
            return [process for process in found if process.first]
        return []


def _processes(group: Path) -> Iterator[Inside]:
    try:
        pids = [int(line) for line in group.read_text().split()]
    except OSError:
        return
    for pid in pids:
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        except (OSError, ValueError):
            continue  # it ended just now
        if argv:
            yield Inside(pid, int(status["PPid"]), status["NSpid"].split()[-1] == "1", tuple(argv))


def _signal(found: list[Inside], number: signal.Signals) -> int:
    hit = 0
    for one in found:
        try:
            os.kill(one.pid, number)
            hit += 1
        except ProcessLookupError:
            continue
    return hit


class PodChaos(Chaos):
    """``nodes``: those that are hurt; ``kinds``: what befalls a pod, a node; ``with_api_server``: it is restarted."""

    def __init__(
        self,
        pods: Pods,
        sweep: Sweep,
        seed: int,
        *,
        nodes: tuple[str, ...] = NODES,
        pod_faults: dict[str, int] = POD_FAULTS,
        node_faults: dict[str, int] = NODE_FAULTS,
        with_api_server: bool = True,
        **pace: Any,
    ) -> None:
        self._pods, self._cluster, self._nodes = pods, pods.namespace.cluster, nodes
        self._pod_faults, self._node_faults = pod_faults, node_faults
        acts: dict[str, Act] = {name: self._of(name, pod_faults, self._strike_pod) for name in DEVICES}
        acts |= {name: self._of(name, node_faults, self._strike_node) for name in nodes}
        if with_api_server:
            acts["cluster"] = self._of("cluster", {"API server restarted": 1}, self._strike_cluster)
        super().__init__(sweep, seed, acts, **{"gap_s": GAPS_S, "kill_s": KILL_S, **pace})

    def mend(self) -> None:
        for node in self._nodes:
            self._heal("", node)

    def _of(self, place: str, faults: dict[str, int], strike: Any) -> Act:
        def act(rng: random.Random) -> None:
            (kind,) = rng.choices(list(faults), list(faults.values()))
            start_s = time.monotonic()
            more: dict[str, float] = {}
            hit = strike(kind, place, rng, more)
            self._note(kind, place, start_s, hit, **more)

        return act

    # -- a pod

    def _strike_pod(self, kind: str, device: str, rng: random.Random, more: dict[str, float]) -> int:
        match kind:
            case "front killed":
                return _signal(self._pods.agents(device)[0], signal.SIGKILL)
            case "front frozen":
                fronts = self._pods.agents(device)[0]
                hit = _signal(fronts, signal.SIGSTOP)
                self._last(rng, 2, 20)
                _signal(fronts, signal.SIGCONT)
                return hit
            case "runner killed":
                return _signal(self._pods.agents(device)[1], signal.SIGKILL)
            case "container killed":
                return _signal(self._pods.first(device), signal.SIGKILL)
        pod = self._pods.of(device)
        if pod is None:
            return 0
        name = pod["metadata"]["name"]
        try:
            if kind == "evicted":
                eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
                self._pods.namespace.api("POST", f"{self._pods.namespace.path}/pods/{name}/eviction", eviction)
            else:
                self._pods.namespace.delete_pod(name, grace_s=0 if kind == "deleted at once" else None)
        except NOT_TOLD:
            return 0
        self._until_gone(pod["metadata"]["uid"])
        return 1

    def _until_gone(self, uid: str) -> None:
        """A pod on a node that is away goes when the node is back."""
        end_s = time.monotonic() + GONE_S
        while time.monotonic() < end_s:
            try:
                if all(one["metadata"]["uid"] != uid for one in self._pods.all()) and not self._pods.inside(uid):
                    return
            except NOT_TOLD:
                pass
            time.sleep(0.2)

    # -- a node

    def _strike_node(self, kind: str, node: str, rng: random.Random, more: dict[str, float]) -> int:
        try:
            self._hurt(kind, node, rng, more)
        finally:
            self._heal(kind, node)
        return 1

    def _hurt(self, kind: str, node: str, rng: random.Random, more: dict[str, float]) -> None:
        match kind:
            case "node cut":
                self._cluster.node(node, "cut")
                self._last(rng, 0.2, rng.choice((4.0, 25.0)))
            case "node cut for long":  # longer than the lease
                self._cluster.node(node, "cut")
                self._last(rng, 65, 80)
            case "node cut, its pods deleted":
                self._cluster.node(node, "cut")
                self._last(rng, 0.5, 6)
                more["forgot_s"] = self._forget(node)
                self._last(rng, 20, 75)
            case "kubelet killed":
                self._cluster.node(node, "stop-kubelet")
                self._last(rng, 0.5, 8)
            case "kubelet away":
                self._cluster.node(node, "stop-kubelet")
                self._last(rng, 20, 40)
            case "power cut of a node":
                self._cluster.node(node, "power-off")
                self._last(rng, 1, 15)
            case "node dead for long":
                self._cluster.node(node, "power-off")
                self._last(rng, 62, 80)
            case "node dead, its pods deleted":
                self._cluster.node(node, "power-off")
                self._last(rng, 0.5, 6)
                more["forgot_s"] = self._forget(node)
                self._last(rng, 20, 60)

    def _heal(self, kind: str, node: str) -> None:
        if kind.startswith("node cut"):
            self._cluster.node(node, "heal")
            return
        for is_last in (False, False, True):  # on a busy machine a node may be there too late to be waited for
            try:
                self._cluster.mend(node)
                return
            except (AssertionError, *NOT_TOLD):
                if is_last:
                    raise

    def _forget(self, node: str) -> float:
        """As by a person who takes a node that is away for dead: its pods are struck off, whatever still runs there.
        When they are."""
        for device in self._pods.on(node):
            try:
                self._pods.namespace.delete_pod(pod_name(device), grace_s=0)
            except NOT_TOLD:
                continue
        return time.monotonic()

    # -- the API server

    def _strike_cluster(self, kind: str, place: str, rng: random.Random, more: dict[str, float]) -> int:
        with self._cluster.without_api_server():
            self._last(rng, 0.2, 8)
        return 1


# -- the end


def left_in(pods: Pods) -> dict[str, list[str]]:
    """What runs in each pod when nobody measures any more, but the agent and whatever keeps the pod."""
    found: dict[str, list[str]] = {}
    for device in DEVICES:
        pod = pods.of(device)
        inside = pods.inside(pod["metadata"]["uid"]) if pod else []
        found[device] = [" ".join(one.argv) for one in inside if not one.is_agent and not one.first]
    return found


def left_after_idling(pods: Pods, device: str, limit_s: float) -> list[str]:
    """Nobody calls any more: its pod must give its node back by itself."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        pod = pods.of(device)
        if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
            return []
        time.sleep(0.5)
    return [f"its pod still runs {limit_s:.0f} s after the last call, idle_timeout_s is {IDLE_S:g}"]


def left_after_cleaning(pods: Pods, sweep: Sweep) -> list[str]:
    """`sidewinder devices clean`, then every pod that is there and every process that runs in one that was."""
    sidewinder = Path(sys.executable).with_name("sidewinder")
    uids = {one["metadata"]["uid"] for one in pods.all()}
    done = subprocess.run(
        [sidewinder, "devices", "clean"], cwd=sweep.folder, env=sweep.environ(), capture_output=True, text=True
    )
    print("".join(f"# clean: {line}\n" for line in (done.stdout + done.stderr).splitlines()), end="", flush=True)
    found = [f"devices clean ended with {done.returncode}: {done.stderr}"] if done.returncode else []
    found += [f"pod {one['metadata']['name']}" for one in pods.all()]
    for device in DEVICES:
        for path in (sweep.folder / "pods" / device / WITNESS).iterdir():
            if '"pod": "' in (text := path.read_text()):
                uids.add(text.split('"pod": "')[1].split('"')[0])
    return [*found, *(" ".join(one.argv)[:200] for uid in sorted(uids) for one in pods.inside(uid))]
