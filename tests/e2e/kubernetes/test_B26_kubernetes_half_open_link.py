"""B26 over pods: a link that swallows everything, at every stage: noticed in bounds, reopened, the run asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.helpers_ssh import FaultProxy
from e2e.kubernetes.helpers_cluster import Namespace
from e2e.kubernetes.helpers_link import behind, server_of
from e2e.kubernetes.helpers_pods import connect
from e2e.kubernetes.helpers_sweeps import HELD, begun, let_go
from sidewinder.errors import TransportError
from sidewinder.model import Task
from sidewinder.transports import kubernetes_channel, kubernetes_cluster
from sidewinder.transports.client import AgentClient
from sidewinder.transports.kubernetes import KubernetesTransport

OUTPUT_BYTES = 4 << 20
TRIES = 10

Test = Callable[[FaultProxy, AgentClient], Awaitable[None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUEST_S", "HANDSHAKE_S"):
        monkeypatch.setattr(kubernetes_cluster, name, 4.0)
    monkeypatch.setattr(kubernetes_channel, "PING_S", 1.0)
    monkeypatch.setattr(kubernetes_channel, "SILENT_S", 4.0)


def drive(namespace: Namespace, folder: Path, test: Test) -> None:
    connect(namespace.device())  # its pod is there
    kubeconfig = namespace.cluster.kubeconfig

    async def body() -> None:
        async with FaultProxy(*server_of(kubeconfig)) as proxy:
            device = namespace.device(kubeconfig=behind(proxy, kubeconfig, folder))
            transport = KubernetesTransport(device)
            client = AgentClient(transport, campaign="c", client_id="me", heartbeat_s=1.0)
            try:
                await test(proxy, client)
            finally:
                proxy.heal()
                await client.close()
                await transport.close()

    asyncio.run(body())


async def back(client: AgentClient) -> None:
    """Connected again. On a busy machine an answer may not come in time, which the next try mends."""
    for _ in range(TRIES):
        with suppress(TransportError):
            await client.connect()
            return
    raise AssertionError("never connected again")


# nothing at all, in the middle of the TLS handshake, of the first answer, of the way to the exec stream
@pytest.mark.parametrize("after_bytes", [0, 1500, 5000, 30_000])
def test_while_it_connects(after_bytes: int, namespace: Namespace, tmp_path: Path) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        if after_bytes:
            proxy.swallow_after_bytes = after_bytes
        else:
            proxy.swallow()
        with pytest.raises(TransportError, match="'k8s'"):
            await client.connect()
        proxy.heal()
        await back(client)

    drive(namespace, tmp_path, test)


def test_while_another_front_is_called(namespace: Namespace, tmp_path: Path) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await back(client)
        proxy.swallow()
        with pytest.raises(TransportError, match="'k8s'"):
            await client.transport.open()
        proxy.heal()
        await back(client)
        assert (await client.execute(["true"])).returncode == 0

    drive(namespace, tmp_path, test)


def test_during_a_silent_workload_which_is_not_restarted(namespace: Namespace, tmp_path: Path) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await back(client)
        await client.start("run", 1, Task(("python3", "-c", HELD)))
        proxy.swallow()
        with pytest.raises(TransportError, match="link lost"):
            await client.wait("run", 1)
        proxy.heal()
        await back(client)
        assert (await client.status("run", 1)).state == "running"
        await asyncio.to_thread(let_go, namespace)
        while True:
            try:
                assert (await client.wait("run", 1)).state == "finished"
                assert (await client.fetch("run", 1)).stdout.head == b"n=1\n"
                await client.ack("run", 1)
                break
            except TransportError:
                await back(client)
        assert await asyncio.to_thread(begun, namespace) == 1, "one execution"

    drive(namespace, tmp_path, test)


def test_while_a_result_is_fetched(namespace: Namespace, tmp_path: Path) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await back(client)
        script = f"head -c {OUTPUT_BYTES} /dev/zero"
        await client.start("run", 1, Task(("sh", "-c", script), output_cap_bytes=2 * OUTPUT_BYTES))
        assert (await client.wait("run", 1)).state == "finished"
        proxy.swallow_after_bytes = proxy.passed_bytes + OUTPUT_BYTES // 4
        with pytest.raises(TransportError, match="link lost"):
            await client.fetch("run", 1)
        proxy.heal()
        await back(client)
        raw = await client.fetch("run", 1)
        assert raw.stdout.whole() == bytes(OUTPUT_BYTES)
        await client.ack("run", 1)

    drive(namespace, tmp_path, test)
