"""What a pod is given, on a real cluster, as the run sees it: files that are brought, volumes, secrets, a place."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, TestCluster, until
from e2e.kubernetes.helpers_pods import READY_S, connect, refused
from e2e.kubernetes.helpers_sweeps import inside
from sidewinder import config
from sidewinder.engine import run_points
from sidewinder.errors import TransportError
from sidewinder.files import plan as plan_file
from sidewinder.model import Device
from sidewinder.transports.kubernetes_errors import Refused

# What the run sees, as one line of JSON on its standard output.
LOOKS = "import hashlib, json, os, sys\n"
Sweep = Callable[..., "tuple[list[dict[str, Any]], list[dict[str, Any]]]"]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """One sweep of its own run folder by a config, as a person writes it: its records and what it told."""

    def sweep(code: str, *devices: Device, arguments: tuple[str, ...] = (), **lab: Any) -> Any:
        root, told = str(tmp_path / f"runs-{secrets.token_hex(3)}"), []
        block = {
            "backend": "command",
            "devices": [one.id for one in devices],
            "command": ["python3", "-c", LOOKS + code, *arguments],
            "metrics": {"n": r"n=(\d)"},
            "models": list(lab.get("models", ())),
        }
        sections = {one.id: {**one.settings, "kind": one.kind} for one in devices}
        text = {"experiment": "given", "output_dir": root, "devices": sections, "matrix": [block], **lab}
        plan = plan_file.publish(root, config.load(text))
        outcomes = run_points(root, plan, list(plan.points), on_event=told.append)
        assert {one.outcome for one in outcomes.values()} == {"ok"}, [one.failure for one in outcomes.values()]
        paths = sorted(Path(root, "records").glob("*/*.json"))
        return [json.loads(path.read_bytes()) for path in paths], told

    return sweep


def seen(record: dict[str, Any]) -> Any:
    return json.loads(record["raw"]["stdout"].splitlines()[-1])


def staged(told: list[dict[str, Any]]) -> set[str]:
    """Devices to which bytes were sent."""
    return {event["device"] for event in told if event["kind"] == "staging" and event["bytes"] > 0}


def test_a_model_that_lies_on_no_volume_is_brought_once(namespace: Namespace, sweep: Sweep, tmp_path: Path) -> None:
    content = secrets.token_bytes(3 << 20)
    sha256 = hashlib.sha256(content).hexdigest()
    model = tmp_path / "m.gguf"
    model.write_bytes(content)
    models = {"m": {"stage": str(model), "sha256": sha256}}
    code = "print('n=1'); print(json.dumps(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest()))"
    devices = [namespace.device(name, cpu="100m", memory="64Mi") for name in ("one", "two")]

    def measure() -> set[str]:
        records, told = sweep(code, *devices, arguments=("{model_path}",), models=models)
        assert [seen(record) for record in records] == [sha256, sha256], "the very content, there"
        for record in records:
            (brought,) = record["workload"]["staged"]
            assert (brought["sha256"], brought["path"]) == (sha256, f"/sidewinder/store/{sha256}")
        return staged(told)

    assert measure() == {"one", "two"}
    assert measure() == set(), "another run folder, another campaign: it lies there"
    spoil = f"p='/sidewinder/store/{sha256}'; import os; os.chmod(p, 0o644); open(p, 'r+b').write(b'spoilt'); print(1)"
    until(lambda: inside(namespace, spoil, "sidewinder-two"), "the weights in one pod are damaged")
    assert measure() == {"two"}, "its digest is looked at before each run: it is brought again"


@pytest.fixture
def claim(namespace: Namespace) -> Iterator[str]:
    """A claim that is bound: to a folder of the nodes that is there, and that the pod may only read."""
    name = f"sidewinder-test-{secrets.token_hex(5)}"
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": name,
        "claimRef": {"namespace": namespace.name, "name": "data"},
        "hostPath": {"path": "/etc", "type": "Directory"},
    }
    namespace.api("POST", "/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    try:
        wanted = {
            "accessModes": ["ReadOnlyMany"],
            "storageClassName": name,
            "resources": {"requests": {"storage": "1Mi"}},
        }
        path = f"{namespace.path}/persistentvolumeclaims"
        namespace.api("POST", path, {"metadata": {"name": "data"}, "spec": wanted})
        until(lambda: namespace.api("GET", f"{path}/data")["status"].get("phase") == "Bound", "it is bound")
        yield "data"
    finally:
        namespace.api("DELETE", f"/api/v1/persistentvolumes/{name}")


def test_secrets_and_volumes_reach_the_run(namespace: Namespace, claim: str, sweep: Sweep) -> None:
    secret = {"metadata": {"name": "hf"}, "stringData": {"token": "hush"}}
    namespace.api("POST", f"{namespace.path}/secrets", secret)
    settings = {"metadata": {"name": "settings"}, "data": {"a.txt": "from the map", "b.txt": "not this one"}}
    namespace.api("POST", f"{namespace.path}/configmaps", settings)
    device = namespace.device(
        cpu="100m",
        memory="64Mi",
        env_from_secrets={"HF_TOKEN": "hf/token"},
        volumes=[
            {"mount_path": "/node", "host_path": "/etc", "type": "Directory", "read_only": True},
            {"mount_path": "/claimed", "pvc": claim, "read_only": True},
            {"mount_path": "/settings", "config_map": "settings"},
            {"mount_path": "/one.txt", "config_map": "settings", "sub_path": "a.txt"},
            {"mount_path": "/scratch", "empty_dir": {"medium": "Memory", "size_limit": "8Mi"}},
        ],
        host_mounts=[{"host_path": "/etc", "mount_path": "/mlsys"}],
    )
    code = (
        "def refused(path):\n"
        "    try: open(path + '/x', 'w')\n"
        "    except OSError as error: return error.strerror\n"
        "mounts = {line.split()[1]: line.split()[2] for line in open('/proc/mounts')}\n"
        "open('/scratch/x', 'w').write('mine')\n"
        "found = {'token': os.environ.get('HF_TOKEN'), 'map': open('/settings/a.txt').read(),\n"
        "         'files': sorted(n for n in os.listdir('/settings') if not n.startswith('.')),\n"
        "         'one': open('/one.txt').read(), 'scratch': mounts['/scratch'], 'mine': open('/scratch/x').read(),\n"
        "         'node': [os.path.exists(p + '/passwd') for p in ('/node', '/claimed', '/mlsys')],\n"
        "         'refused': [refused(p) for p in ('/node', '/claimed', '/mlsys', '/settings')]}\n"
        "print('n=1'); print(json.dumps(found))"
    )
    (record,), _ = sweep(code, device)
    read_only = "Read-only file system"
    assert seen(record) == {
        "token": "hush",
        "map": "from the map",
        "files": ["a.txt", "b.txt"],
        "one": "from the map",
        "scratch": "tmpfs",
        "mine": "mine",
        "node": [True, True, True],
        "refused": [read_only] * 4,
    }
    assert "hush" not in json.dumps({**record, "raw": None}), "the value is the cluster's affair"


@pytest.fixture
def priority(namespace: Namespace) -> Iterator[str]:
    name = f"sidewinder-test-{secrets.token_hex(5)}"
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    namespace.api("POST", path, {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"})
    yield name
    namespace.api("DELETE", f"{path}/{name}")


def test_a_pod_is_what_was_asked_for_with_ours_over_the_template(
    namespace: Namespace, priority: str, sweep: Sweep
) -> None:
    namespace.api("POST", f"{namespace.path}/serviceaccounts", {"metadata": {"name": "bench"}})
    nodes = [one["metadata"]["name"] for one in namespace.api("GET", "/api/v1/nodes")["items"]]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [nodes[0]]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}
    template = {
        "metadata": {"labels": {"team": "lab"}, "annotations": {"note": "kept", "sidewinder/device": "not ours"}},
        "spec": {
            "restartPolicy": "Always",
            "securityContext": {"fsGroup": 4711},
            "tolerations": [{"key": "from-template", "operator": "Exists"}],
            "containers": [
                {
                    "name": "agent",
                    "image": "never/pulled:1",
                    "env": [{"name": "FROM_TEMPLATE", "value": "yes"}],
                    "resources": {"limits": {"cpu": "900m"}},
                },
                {"name": "beside", "image": namespace.cluster.image, "imagePullPolicy": namespace.cluster.pull_policy},
            ],
        },
    }
    template["spec"]["containers"][1] |= {"command": ["python3", "-c", "import signal; signal.pause()"]}
    device = namespace.device(
        cpu="150m",
        memory="64Mi",
        priority_class=priority,
        service_account="bench",
        affinity={"nodeAffinity": affinity},
        tolerations=[{"key": "bench", "operator": "Equal", "value": "only", "effect": "NoSchedule"}],
        pod_template=template,
    )
    code = (
        "token = '/var/run/secrets/kubernetes.io/serviceaccount/token'\n"
        "found = {'env': os.environ.get('FROM_TEMPLATE'), 'groups': os.getgroups(), 'token': os.path.exists(token)}\n"
        "print('n=1'); print(json.dumps(found))"
    )
    (record,), _ = sweep(code, device)
    pod = namespace.pod()
    spec, ours = pod["spec"], next(one for one in pod["spec"]["containers"] if one["name"] == "agent")
    saw = seen(record)
    assert (saw["env"], saw["token"]) == ("yes", True)
    assert 4711 in saw["groups"]
    assert (spec["priorityClassName"], spec["priority"], spec["serviceAccountName"]) == (priority, 7, "bench")
    assert spec["nodeName"] == nodes[0] == record["device"]["pod"]["node"]
    assert {one["key"] for one in spec["tolerations"]} >= {"from-template", "bench"}
    assert (ours["image"], ours["resources"]["limits"]["cpu"]) == (namespace.cluster.image, "150m"), "ours wins"
    assert spec["restartPolicy"] == "OnFailure"
    assert record["device"]["placement"]["cpu_quota_cores"] == 0.15
    assert {one["name"] for one in spec["containers"]} == {"agent", "beside"}
    metadata = pod["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("lab", "kept")
    assert metadata["annotations"]["sidewinder/device"] == "k8s"


def test_an_extended_resource_is_asked_for_and_waited_for(own: TestCluster, namespace: Namespace) -> None:
    offer(own, "node1", "example.com/gpu", "1")
    try:
        found = connect(namespace.device(cpu="100m", memory="64Mi", resources={"example.com/gpu": 1}))
        assert found["node"] == "node1"
        assert found["limits"]["example.com/gpu"] == found["requests"]["example.com/gpu"] == "1"
        second = namespace.device("other", resources={"example.com/gpu": 1}, ready_timeout_s=READY_S)
        assert "Insufficient example.com/gpu" in refused(second, TransportError)
    finally:
        offer(own, "node1", "example.com/gpu", None)


def offer(cluster: TestCluster, node: str, resource: str, count: str | None) -> None:
    """As a device plugin would; None: not any more."""
    path = f"/api/v1/nodes/{node}"

    def done() -> bool:
        found = cluster.api("GET", path)
        for where in ("capacity", "allocatable"):
            if count is None:
                found["status"][where].pop(resource, None)
            else:
                found["status"][where][resource] = count
        try:
            cluster.api("PUT", f"{path}/status", found)
        except Refused as error:
            if error.status != 409:  # the kubelet wrote meanwhile
                raise
            return False
        return True

    until(done, f"{node} has {count} {resource}")
