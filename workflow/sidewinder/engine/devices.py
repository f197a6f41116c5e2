"""A device link: one device as the engine holds it, connected on demand, with what was learnt over the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sidewinder.errors import SidewinderError, TransportError
from sidewinder.model import EMPTY, Device, Found, Json

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient
    from sidewinder.workloads.base import Workload

CLOCK_PROBES = 4

OpenClient = Callable[[Device], "AgentClient"]


class DeviceLink:
    """One agent client, made anew after each loss of the link. Many instructions use it at the same time."""

    def __init__(self, device: Device, open_client: OpenClient) -> None:
        self.device = device
        self.facts: Mapping[str, Json] = EMPTY
        self.clock: dict[str, float] | None = None
        self.last_run: str | None = None  # what ran on it before: the predecessor of the next record
        self._open_client = open_client
        self._client: AgentClient | None = None
        self._connecting: asyncio.Task[AgentClient] | None = None
        self._found: dict[str, asyncio.Task[Found]] = {}

    async def client(self) -> AgentClient:
        """A connected client. Those who ask while it connects share the one attempt and its outcome."""
        if self._client is not None:
            return self._client
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._connected)
        # shielded: one instruction that is cancelled must not break the connection for the others
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> AgentClient:
        client = self._open_client(self.device)
        try:
            hello = await client.connect()
            self.facts = hello.facts
            await self._take_clock(client)
        except BaseException:
            await client.close()
            raise
        return client

    async def _take_clock(self, client: AgentClient) -> None:
        estimate = await client.clock(CLOCK_PROBES)
        self.clock = {"offset_s": estimate.offset_s, "bound_s": estimate.bound_s}

    def _connected(self, task: asyncio.Task[AgentClient]) -> None:
        self._connecting = None
        if not task.cancelled() and task.exception() is None:
            self._client = task.result()

    async def lost(self, client: AgentClient) -> None:
        """An operation over ``client`` failed on the way: whoever comes next connects anew."""
        if self._client is client:
            self._client = None
            await client.close()

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def found(self, workload: Workload) -> Found:
        """What discovery finds for this backend, asked once. A failure is not kept: it may be gone by the next try."""
        backend = workload.backend
        task = self._found.get(backend)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._discover(workload))
            self._found[backend] = task
        try:
            return await asyncio.shield(task)
        except SidewinderError:
            if self._found.get(backend) is task:
                del self._found[backend]
            raise

    async def _discover(self, workload: Workload) -> Found:
        await self.client()
        return await workload.discover(self, self.device.backends.get(workload.backend, EMPTY))

    # -- DeviceView: what discovery may ask

    async def first_existing(self, paths: Sequence[str]) -> str | None:
        client = await self.client()
        try:
            return await client.look(paths)
        except TransportError:
            await self.lost(client)
            raise

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> tuple[int, bytes, bytes]:
        client = await self.client()
        try:
            return await client.execute(argv, stdin=stdin, timeout_s=timeout_s, env=self.device.env)
        except TransportError:
            await self.lost(client)
            raise


def agent_opener(campaign: str, client_id: str) -> OpenClient:
    """How devices are really reached: the agent over the transport of the device's kind."""

    def open_client(device: Device) -> AgentClient:
        from sidewinder import transports
        from sidewinder.transports.client import AgentClient

        return AgentClient(transports.open(device), campaign=campaign, client_id=client_id)

    return open_client
