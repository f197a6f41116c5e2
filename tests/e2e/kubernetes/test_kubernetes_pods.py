"""A pod's life on a real cluster: had, used again, replaced, waited for, shared or left alone."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_pods import READY_S, connect, connected, refused
from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import Task
from sidewinder.transports import kubernetes_cluster, kubernetes_pod
from sidewinder.transports.kubernetes import KubernetesTransport
from sidewinder.transports.kubernetes_pod import PodLife


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


def test_a_pod_in_use_is_removed_by_force_only(namespace: Namespace) -> None:
    """As `sidewinder devices down` and `clean` do it, perhaps in another terminal than a sweep's."""

    async def remove(**options: Any) -> bool:
        cluster = kubernetes_cluster.enter(namespace.device())
        try:
            return await PodLife(namespace.device(), cluster).remove(**options)
        finally:
            await kubernetes_cluster.leave(cluster)

    async def body() -> None:
        async with connected(namespace.device()) as client:
            with pytest.raises(DeviceFault, match=r"it is in use.*--force"):
                await remove()
            assert (await client.execute(["true"])).returncode == 0
        assert await remove(), "nobody is there any more"
        async with connected(namespace.device()):
            assert await remove(force=True)

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
