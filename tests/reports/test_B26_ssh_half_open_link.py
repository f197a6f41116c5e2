"""B26: a link that swallows everything, at every stage: noticed in bounds, reopened, the run asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from e2e.helpers_ssh import FaultProxy, Sshd, needs_sshd
from sidewinder import transports
from sidewinder.errors import TransportError
from sidewinder.model import Task
from sidewinder.transports import ssh as ssh_transport
from sidewinder.transports import ssh_target
from sidewinder.transports.client import AgentClient

pytestmark = needs_sshd
OUTPUT_BYTES = 4 << 20


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.2)
    monkeypatch.setattr(ssh_target, "LOGIN_S", 1.0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


def drive(server: Sshd, test: Callable[[FaultProxy, AgentClient], Awaitable[None]]) -> None:
    async def body() -> None:
        async with FaultProxy(server.port) as proxy:
            transport = transports.open(server.device(port=proxy.port))
            client = AgentClient(transport, campaign="c", client_id="me", heartbeat_s=0.5)
            try:
                await test(proxy, client)
            finally:
                await client.close()
                await transport.close()

    asyncio.run(body())


@pytest.mark.parametrize("after_bytes", [0, 1, 1500], ids=["connect", "banner", "key-exchange"])
def test_while_it_logs_in(after_bytes: int, server: Sshd) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        if after_bytes:
            proxy.swallow_after_bytes = after_bytes
        else:
            proxy.swallow()
        with pytest.raises(TransportError, match="pi5"):
            await client.connect()
        proxy.heal()
        await client.connect()

    drive(server, test)


def test_while_a_session_is_opened(server: Sshd) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await client.connect()
        proxy.swallow()
        with pytest.raises(TransportError, match="pi5"):
            await client.transport.open()
        proxy.heal()
        await client.connect()

    drive(server, test)


def test_while_a_session_is_opened_and_the_link_has_no_keepalive_left(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for a session has a bound of its own."""
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 3600.0)
    monkeypatch.setattr(ssh_transport, "OPEN_S", 0.3)

    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await client.connect()
        proxy.swallow()
        with pytest.raises(TransportError, match=r"0\.3 s"):
            await client.transport.open()
        proxy.heal()
        await client.connect()

    drive(server, test)


def test_during_a_silent_workload_which_is_not_restarted(server: Sshd, tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"

    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await client.connect()
        script = f"echo began >> {log}; while [ ! -e {go} ]; do sleep 0.05; done; echo ended"
        await client.start("run", 1, Task(("sh", "-c", script)))
        proxy.swallow()
        with pytest.raises(TransportError, match="link lost"):
            await client.wait("run", 1)
        proxy.heal()
        await client.connect()
        assert (await client.status("run", 1)).state == "running"
        go.touch()
        assert (await client.wait("run", 1)).state == "finished"
        assert (await client.fetch("run", 1)).stdout.head == b"ended\n"
        await client.ack("run", 1)

    drive(server, test)
    assert log.read_text() == "began\n"


def test_while_a_result_is_fetched(server: Sshd) -> None:
    async def test(proxy: FaultProxy, client: AgentClient) -> None:
        await client.connect()
        script = f"head -c {OUTPUT_BYTES} /dev/zero"
        await client.start("run", 1, Task(("sh", "-c", script), output_cap_bytes=2 * OUTPUT_BYTES))
        assert (await client.wait("run", 1)).state == "finished"
        proxy.swallow_after_bytes = proxy.passed_bytes + OUTPUT_BYTES // 4
        with pytest.raises(TransportError, match="link lost"):
            await client.fetch("run", 1)
        proxy.heal()
        await client.connect()
        raw = await client.fetch("run", 1)
        assert raw.stdout.whole() == bytes(OUTPUT_BYTES)
        await client.ack("run", 1)

    drive(server, test)
