"""A pod's life on a real cluster: had, used again, replaced, refused, and given up with its reason."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.helpers_cluster import PROJECT, Namespace, TestCluster, until
from sidewinder.errors import ConfigError, DeviceFault, SidewinderError, TransportError
from sidewinder.model import Device, Task
from sidewinder.transports import kubernetes_pod, kubernetes_verdict
from sidewinder.transports.client import AgentClient
from sidewinder.transports.kubernetes import KubernetesTransport

READY_S = 8.0  # of pods that are never ready


@contextlib.asynccontextmanager
async def connected(device: Device, said: list[str] | None = None) -> AsyncIterator[AgentClient]:
    transport = KubernetesTransport(device)
    if said is not None:
        transport.tell = said.append
    client = AgentClient(transport, campaign="c", client_id="me")
    try:
        await client.connect()
        yield client
    finally:
        await client.close()
        await transport.close()


def connect(device: Device, said: list[str] | None = None) -> dict[str, Any]:
    """Connects once and leaves; what is known of the pod."""

    async def body() -> dict[str, Any]:
        async with connected(device, said) as client:
            assert client.hello is not None
            return dict(client.hello.facts["pod"])

    return asyncio.run(body())


def refused(device: Device, kind: type[SidewinderError], said: list[str] | None = None) -> str:
    with pytest.raises(kind) as caught:
        connect(device, said)
    assert type(caught.value) is kind, "the very class: each says something else"
    assert f"{device.id!r}" in str(caught.value), "it names the device"
    return str(caught.value)


def test_a_pod_is_made_used_again_and_replaced_when_the_config_changes(namespace: Namespace) -> None:
    said: list[str] = []
    first = connect(namespace.device(), said)
    assert "its pod was created" in said
    assert first["qos"] == "Guaranteed"
    assert first["asked"] == {"cpu": "500m", "memory": "128Mi"} == first["limits"] == first["requests"]
    assert namespace.pod()["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "sidewinder"
    again = connect(namespace.device())
    assert (again["uid"], again["container_id"]) == (first["uid"], first["container_id"])
    unlimited = connect(namespace.device(cpu=None, memory=None), said)
    assert "its pod has another specification and is replaced" in said
    assert unlimited["uid"] != first["uid"]
    assert unlimited["qos"] == "BestEffort"
    assert "limits" not in unlimited


def test_a_run_in_a_pod_sees_its_limits_and_leaves_no_zombie(namespace: Namespace) -> None:
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: os._exit(0)\n"  # an orphan of an orphan
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.2)\n"
        "states = [open(f'/proc/{n}/stat').read().split()[2] for n in os.listdir('/proc') if n.isdigit()]\n"
        "print(states.count('Z'), os.getppid() > 0)\n"
    )

    async def body() -> None:
        async with connected(namespace.device(cpu="250m")) as client:
            assert client.hello is not None
            assert client.hello.facts["placement"]["cpu_quota_cores"] == 0.25
            assert client.hello.facts["placement"]["runtime"] == "kubernetes"
            await client.start("r", 1, Task(("python3", "-c", code)))
            assert (await client.wait("r", 1)).state == "finished"
            raw = await client.fetch("r", 1)
            assert (raw.state, raw.returncode) == ("done", 0)
            assert raw.stdout.head.split()[0] == b"0", "whoever dies is buried"
            big = bytes(range(256)) * 20_000
            digest = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
            told = (await client.execute(["python3", "-c", digest], stdin=big)).stdout.decode().strip()
            assert told == hashlib.sha256(big).hexdigest(), "bytes arrive as they are, many too"

    asyncio.run(body())


def test_a_strangers_pod_is_never_touched(namespace: Namespace) -> None:
    made = namespace.make_pod("sidewinder-k8s")
    assert "did not make" in refused(namespace.device(), DeviceFault)
    ours = connect(namespace.device("other"))
    assert "belongs to device 'other'" in refused(namespace.device(pod="sidewinder-other", cpu="1"), DeviceFault)
    assert namespace.pod()["metadata"]["uid"] == made["metadata"]["uid"]
    assert namespace.pod("sidewinder-other")["metadata"]["uid"] == ours["uid"]


def test_a_pod_of_another_person_is_shared_or_refused(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    first = connect(namespace.device())
    monkeypatch.setattr(kubernetes_pod, "owner", lambda: "her@there")
    assert connect(namespace.device())["uid"] == first["uid"], "the same device: its slot lock keeps order"
    assert "was made by" in refused(namespace.device(cpu="1"), DeviceFault)
    assert namespace.pod()["metadata"]["uid"] == first["uid"]


def test_a_pod_in_use_is_not_taken_away_by_another_config(namespace: Namespace) -> None:
    async def body() -> None:
        async with connected(namespace.device()) as client:
            assert client.hello is not None
            transport = KubernetesTransport(namespace.device(cpu="1", ready_timeout_s=READY_S))
            with pytest.raises(TransportError, match="in use by another controller"):
                await transport.open()
            await transport.close()
            assert (await client.execute(["true"])).returncode == 0

    asyncio.run(body())


def test_a_pod_that_is_being_deleted_is_waited_for(namespace: Namespace) -> None:
    old = namespace.make_pod("sidewinder-k8s", terminationGracePeriodSeconds=6)
    until(lambda: namespace.pod()["status"].get("phase") == "Running", "it runs")
    namespace.delete_pod()  # and it does not listen to SIGTERM
    said: list[str] = []
    assert connect(namespace.device(), said)["uid"] != old["metadata"]["uid"]
    assert "a pod of that name is being deleted; it is waited for" in said


def test_a_pod_that_nobody_calls_ends_and_is_made_anew(namespace: Namespace) -> None:
    device = namespace.device(idle_timeout_s=4)  # less than a person may write
    first = connect(device)
    until(lambda: namespace.pod()["status"]["phase"] == "Succeeded", "it gives its node back")
    said: list[str] = []
    assert connect(device, said)["uid"] != first["uid"]
    assert any("its pod is over (Succeeded" in one and "made anew" in one for one in said)


def template(**agent: Any) -> dict[str, Any]:
    """A pod template with something of its own for our container."""
    return {"spec": {"containers": [{"name": "agent", **agent}]}}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"image": "k8s.local/nothere:1", "image_pull_policy": "Never"},
            ["image cannot be had", "ErrImageNeverPull", ".image"],
        ),
        ({"env_from_secrets": {"T": "nope/key"}}, ["CreateContainerConfigError", '"nope"']),
        ({"python": "/no/such/python"}, ["first process", "/no/such/python", ".python"]),
        ({"pod_template": template(volumeMounts=[{"name": "v", "mountPath": "v"}])}, ["refuses", "volumeMounts"]),
    ],
    ids=["image", "reference", "command", "invalid"],
)
def test_what_waiting_cannot_mend_fails_at_once(
    settings: dict[str, Any], words: list[str], namespace: Namespace
) -> None:
    text = refused(namespace.device(**settings), DeviceFault)
    for word in words:
        assert word in text
    until(lambda: namespace.pod() is None, "a pod that never starts gives its place back")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cpu": "999"}, "Insufficient cpu"),
        ({"node_name": "no-such-node"}, "Unschedulable"),
        ({"volumes": [{"mount_path": "/v", "config_map": "nope"}]}, 'configmap "nope" not found'),
        ({"pod_template": template(readinessProbe={"exec": {"command": ["false"]}})}, "ContainersNotReady"),
    ],
    ids=["full", "pinned", "volume", "not-ready"],
)
def test_what_waiting_may_mend_is_waited_for_and_says_why(
    settings: dict[str, Any], words: str, namespace: Namespace
) -> None:
    said: list[str] = []
    text = refused(namespace.device(ready_timeout_s=READY_S, **settings), TransportError, said)
    assert words in text
    assert f"not ready within {READY_S:g} s" in text
    assert any(words in one for one in said), "it was said meanwhile, too"
    until(lambda: namespace.pod() is None, "a pod that never starts gives its place back")


def test_a_quota_that_is_used_up_is_waited_for(namespace: Namespace) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "600m"}}}
    namespace.api("POST", f"{namespace.path}/resourcequotas", quota)
    until(lambda: (namespace.api("GET", f"{namespace.path}/resourcequotas/q")["status"] or {}).get("used"), "it counts")
    connect(namespace.device())
    said: list[str] = []
    other = namespace.device("other", ready_timeout_s=READY_S)
    assert "exceeded quota: q" in refused(other, TransportError, said)

    async def body() -> None:
        async def free() -> None:
            await asyncio.to_thread(until, lambda: any("exceeded quota" in one for one in said), "it waits")
            await asyncio.to_thread(namespace.delete_pod)

        said.clear()
        freeing = asyncio.create_task(free())
        async with connected(namespace.device("other"), said):
            await freeing

    asyncio.run(body())


def test_a_policy_of_the_cluster_that_refuses_the_pod(test_cluster: TestCluster) -> None:
    with test_cluster.namespace(**{"pod-security.kubernetes.io__enforce": "restricted"}) as namespace:
        text = refused(namespace.device(), DeviceFault)
    assert "the cluster refuses such a pod" in text
    assert "PodSecurity" in text


def test_a_pod_that_is_there_is_used_as_it_is(namespace: Namespace) -> None:
    device = namespace.device(image=None, cpu=None, memory=None, pod="mine", container="c", ready_timeout_s=READY_S)
    assert "`create: false`" in refused(device, TransportError)
    made = namespace.make_pod("mine")
    found = connect(namespace.device(image=None, cpu=None, memory=None, pod="mine", container="c", workdir="/tmp/s"))
    assert found["uid"] == made["metadata"]["uid"]
    assert "no container 'd', only c" in refused(
        namespace.device(image=None, cpu=None, memory=None, pod="mine", container="d"), DeviceFault
    )
    until(lambda: namespace.pod("mine"), "it is not ours to remove")


def test_an_image_without_python(namespace: Namespace, test_cluster: TestCluster) -> None:
    text = refused(namespace.device(image=test_cluster.bare_image), DeviceFault)
    assert "python3" in text
    assert "devices.k8s.python" in text
    namespace.make_pod("bare")
    device = namespace.device(image=None, pod="bare", container="c", python="python9", cpu=None, memory=None)
    assert "python9 is not there" in refused(device, DeviceFault)


def test_a_container_that_does_not_stay_up(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_verdict, "_CRASHES", 1)
    text = refused(namespace.device(python="false"), DeviceFault)
    assert "ends again and again" in text
    assert "exit code 1" in text


def account(namespace: Namespace, name: str, rules: list[dict[str, Any]], folder: Path) -> str:
    """The kubeconfig of a new account that may do only this, and only in that namespace."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace.name}"
    namespace.api("POST", f"{namespace.path}/serviceaccounts", {"metadata": {"name": name}})
    namespace.api("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    bound = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace.name}],
    }
    namespace.api("POST", f"{rbac}/rolebindings", bound)
    answer = namespace.api("POST", f"{namespace.path}/serviceaccounts/{name}/token", {"spec": {}})
    return with_token(namespace, answer["status"]["token"], folder / name)


def with_token(namespace: Namespace, token: str, path: Path) -> str:
    text = yaml.safe_load(Path(namespace.cluster.kubeconfig).read_text())
    text["users"] = [{"name": text["users"][0]["name"], "user": {"token": token}}]
    path.write_text(yaml.safe_dump(text))
    return str(path)


def test_the_role_of_the_docs_is_enough(namespace: Namespace, tmp_path: Path) -> None:
    text = (PROJECT / "docs/kubernetes.md").read_text()
    role = yaml.safe_load(next(part for part in text.split("```yaml")[1:] if "kind: Role" in part).partition("```")[0])
    found = connect(namespace.device(kubeconfig=account(namespace, "lab", role["rules"], tmp_path)))
    assert found["node"]
    assert "node_info" not in found, "that takes more"


def test_an_account_that_may_too_little(namespace: Namespace, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]}]
    text = refused(namespace.device(kubeconfig=account(namespace, "no-exec", rules, tmp_path)), DeviceFault)
    assert "forbidden" in text
    assert "the Role that is needed" in text
    rules[0]["verbs"] = ["get"]
    text = refused(namespace.device("other", kubeconfig=account(namespace, "no-create", rules, tmp_path)), DeviceFault)
    assert "cannot create resource" in text
    assert "log in again" in refused(
        namespace.device(kubeconfig=with_token(namespace, "gone", tmp_path / "bad")), DeviceFault
    )


def test_a_namespace_that_is_not_there(test_cluster: TestCluster, namespace: Namespace) -> None:
    text = refused(namespace.device(namespace="sidewinder-test-nobody-made-it"), DeviceFault)
    assert "devices.k8s.namespace" in text


@pytest.mark.parametrize(
    "change", [{"context": "no-such-context"}, {"kubeconfig": "/no/such/file"}], ids=["context", "file"]
)
def test_a_kubeconfig_that_does_not_fit(change: dict[str, Any], namespace: Namespace) -> None:
    with pytest.raises(ConfigError, match=r"kubeconfig"):
        connect(namespace.device(**change))
