"""B27: servers that allow few sessions on a connection and few logins at once: nothing is dropped, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_ssh import Sshd, needs_sshd
from engine.helpers_engine import command, make_plan, run
from sidewinder import transports
from sidewinder.model import Task
from sidewinder.transports.client import AgentClient
from sidewinder.transports.ssh_connection import Dialler

pytestmark = needs_sshd
DEVICES = 20


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    one = Sshd(tmp_path / "pi5", options=["MaxSessions 4", "MaxStartups 3:50:5", "LogLevel VERBOSE"]).start()
    yield one
    one.stop()


def test_many_questions_to_one_device_at_once(server: Sshd) -> None:
    async def body() -> None:
        transport = transports.open(server.device())
        client = AgentClient(transport, campaign="c", client_id="me")
        await client.connect()
        for n in range(3):
            await client.start(f"done{n}", 1, Task(("echo", str(n))), n)
            await client.wait(f"done{n}", 1)
        answers = await asyncio.gather(
            *(client.status("done0", 1) for _ in range(30)),
            *(client.fetch(f"done{n}", 1) for n in range(3)),
            *(client.start(f"new{n}", 1, Task(("true",)), 3 + n) for n in range(2)),
        )
        assert [status.state for status in answers[:30]] == ["finished"] * 30
        assert [raw.stdout.head for raw in answers[30:33]] == [b"0\n", b"1\n", b"2\n"]
        assert [started.outcome for started in answers[33:]] == ["started"] * 2
        for n in range(2):
            await client.wait(f"new{n}", 1)
        await client.close()
        await transport.close()

    asyncio.run(body())
    assert server.log.read_text().count("Accepted publickey") == 1


def test_more_channels_than_sessions_wait_for_their_turn(server: Sshd) -> None:
    async def body() -> None:
        transport = transports.open(server.device())
        gate = asyncio.Semaphore(2)

        async def one(n: int) -> str:
            async with gate:
                client = AgentClient(transport, campaign="c", client_id=f"client-{n}")
                await client.connect()
                answer = (await client.execute(["echo", str(n)])).stdout.decode().strip()
                await client.close()
            return answer

        assert await asyncio.gather(*(one(n) for n in range(6))) == [str(n) for n in range(6)]
        await transport.close()

    asyncio.run(body())
    assert server.log.read_text().count("Accepted publickey") == 1


def test_twenty_devices_log_in_to_one_server_at_once(server: Sshd) -> None:
    async def body() -> None:
        diallers = [Dialler(server.device(f"pi{n:02}")) for n in range(DEVICES)]
        for connection in await asyncio.gather(*(dialler.log_in() for dialler in diallers)):
            await connection.close()

    asyncio.run(body())
    assert server.log.read_text().count("Accepted publickey") == DEVICES
    # 15 and more would be dropped if all came at once; one more may be there while sshd still counts the last one
    assert server.log.read_text().count("drop connection") <= 5


def test_a_sweep_on_many_devices_behind_one_server(server: Sshd, tmp_path: Path) -> None:
    devices = [server.device(f"pi{n:02}") for n in range(DEVICES // 2)]
    points = [command("echo", "n=1", metrics={"n": r"n=(\d)"}, device=device.id) for device in devices]
    plan = make_plan(tmp_path / "runs", points, devices=devices)
    told = run(tmp_path / "runs", plan)
    assert list(told.done.values()) == ["ok"] * len(devices)
    assert "retry" not in told.kinds()
