"""Helpers for tests of the agent: a device that is this machine, with a state folder of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from sidewinder.model import Device, RawResult, Task
from sidewinder.transports.client import AgentClient
from sidewinder.transports.local import LocalChannel, LocalTransport
from sidewinder.transports.messages import Status

T = TypeVar("T")
PATIENCE_S = 30.0
READY = "echo ready > {path}; "


def written(path: Path) -> bool:
    """A file that its writer fills at one stroke is there, and not just made."""
    return path.exists() and path.stat().st_size > 0


class Bench:
    """Clients of one state folder, all closed at the end; whatever still runs there is killed."""

    def __init__(self, state: Path, **agent_options: Any) -> None:
        self.state = state
        self.agent_options = agent_options
        self.clients: list[AgentClient] = []

    async def client(
        self,
        client_id: str = "controller",
        *,
        campaign: str = "campaign",
        python: str | None = None,
        lock: str = "slot",
        **options: Any,
    ) -> AgentClient:
        device = Device("here", "local", python=python, lock=lock)
        transport = LocalTransport(device, state_dir=str(self.state), **self.agent_options)
        client = AgentClient(transport, campaign=campaign, client_id=client_id, **options)
        self.clients.append(client)
        await client.connect()
        return client

    def record(self, run_id: str, n: int = 1, campaign: str = "campaign") -> Path:
        return self.state / "runs" / campaign / f"{run_id}.{n}"

    def processes(self) -> list[int]:
        """Live processes of runs of this state folder, found by the cookies in its records."""
        cookies = []
        for meta in self.state.glob("runs/*/*/meta.json"):
            with suppress(OSError, ValueError):
                cookies.append(json.loads(meta.read_text())["cookie"].encode())
        return [pid for pid, environ in _environments() if any(cookie in environ for cookie in cookies)]

    def runners(self) -> list[int]:
        pids = []
        for proc in self.state.glob("runs/*/*/proc.json"):
            with suppress(OSError, ValueError):
                pid = json.loads(proc.read_text())["runner"]
                if alive(pid):
                    pids.append(pid)
        return pids

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for pid in self.runners() + self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _environments() -> list[tuple[int, bytes]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                    found.append((int(entry.name), (entry / "environ").read_bytes()))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def front_pid(client: AgentClient) -> int:
    session = client._session
    assert session is not None
    channel = session.channel
    assert isinstance(channel, LocalChannel)
    return channel.process.pid


async def run(client: AgentClient, run_id: str, task: Task, n: int = 1, slot: int = 0) -> RawResult:
    """Start, wait, fetch, ack."""
    started = await client.start(run_id, n, task, slot)
    assert started.outcome == "started", started
    status = await client.wait(run_id, n)
    assert status.state == "finished", status
    raw = await client.fetch(run_id, n)
    await client.ack(run_id, n)
    return raw


async def eventually(condition: Callable[[], object]) -> None:
    """Until it is so; a state that never comes fails the test by its time-out, it does not hang it."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError("never came true")
        await asyncio.sleep(0.01)


async def ended(client: AgentClient, run_id: str, n: int = 1) -> Status:
    async with asyncio.timeout(PATIENCE_S):
        return await client.wait(run_id, n)


def sh(script: str, **options: Any) -> Task:
    return Task(("/bin/sh", "-c", script), **options)


def drive(state: Path, test: Callable[[Bench], Awaitable[T]], **agent_options: Any) -> T:
    """Run an async test with a bench that is cleaned up afterwards."""

    async def body() -> T:
        bench = Bench(state, **agent_options)
        try:
            return await test(bench)
        finally:
            await bench.close()

    coroutine: Coroutine[Any, Any, T] = body()
    return asyncio.run(coroutine)
