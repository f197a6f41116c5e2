"""A device link: one device as the engine holds it, connected on demand, with what was learnt over the connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.model import EMPTY, Device, Failure, Found, Json

from . import logout
from .clockwatch import ClockWatch
from .waiting import Waiting

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient
    from sidewinder.transports.messages import Hello
    from sidewinder.workloads.base import Workload

PROBE_S = 20.0  # for the look at the disk: one that hangs is no sign of health
LOOK_S = 10.0  # for a look at what became of it; it is looked again, and asked
MIN_FREE_BYTES = 32 << 20  # what a run leaves on its device by itself stays below

OpenClient = Callable[[Device], "AgentClient"]


def path_on(device: Device, path: str) -> str:
    """A relative path of a lab counts from where the person stands on the controller, from the home folder elsewhere.

    The agent's front and a run's own folder are neither, so on this machine the path is made whole.
    """
    return os.path.abspath(path) if device.kind == "local" and not path.startswith("~") else path


class DeviceLink:
    """One agent client, used by many instructions at the same time."""

    def __init__(
        self, device: Device, open_client: OpenClient, boots: Mapping[tuple[str, int], str] | None = None
    ) -> None:
        """``boots``: in which boot of the device an earlier controller started (run id, attempt), where it is said."""
        self.device = device
        self._boots = boots or {}
        self.facts: Mapping[str, Json] = EMPTY
        self.tell: Callable[[str], None] | None = None  # a sentence about the device, for people; each once
        self.waiting = Waiting()
        self.remarks: dict[str, str] = {}
        self.met: Callable[[], None] | None = None  # it has answered, and its facts are known
        self.clock = ClockWatch(
            is_here=device.kind == "local", name=device.id, tell=lambda text: self._remark("clock", text)
        )
        self.last_run: str | None = None  # what ran on it before: the predecessor of the next record
        self._open_client = open_client
        self._client: AgentClient | None = None
        self._hello: Hello | None = None
        self._users = 0
        self._found: dict[str, asyncio.Task[Found]] = {}
        self._vouching: asyncio.Task[None] | None = None

    @property
    def lease_s(self) -> float:
        """How long a run outlives its link."""
        return self._opened().lease_s

    def _opened(self) -> AgentClient:
        if self._client is None:
            self._client = self._open_client(self.device)
            if hasattr(self._client.transport, "tell"):  # one that may have to wait long says meanwhile why
                self._client.transport.tell = self.waiting.because
            for (run_id, n), boot in self._boots.items():
                self._client.began_in(run_id, n, boot)
        return self._client

    async def is_there(self) -> bool:
        """False: it would have to be made first, or waited for. Raises ``TransportError``, ``DeviceFault``,
        ``ConfigError``."""
        look = getattr(self._opened().transport, "is_there", None)
        return look is None or bool(await look())

    def boot_of(self, run_id: str, n: int) -> str | None:
        """In which boot of the device this attempt began, or would now, where it may forget what ran in an earlier one;
        else None."""
        return self._client.boot_of(run_id, n) if self._client is not None else self._boots.get((run_id, n))

    @property
    def left(self) -> Hello | None:
        """What an earlier connection met, where that is over; None: it goes on, or there was none."""
        return None if self._client is not None and self._client.connected else self._hello

    async def death_since(self, left: Hello | None) -> Failure | None:
        """How the device ended that was met in this try, which began with this ``left``; None: none was met, or nothing
        says that it ended."""
        if self._hello is None or self._hello is left:
            return None
        return await _known(self._opened().death_in(self._hello.boot_id))

    async def death_of(self, run_id: str, n: int) -> Failure | None:
        """How what this attempt ran in ended, and that it did; None: nothing that can be looked at says so."""
        return await _known(self._opened().death_of(run_id, n))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AgentClient]:
        """A connected client for one operation. Raises ``TransportError``, ``DeviceFault``."""
        client = self._opened()
        self._users += 1
        try:
            with self.waiting.trying():
                hello = await client.connect()
            if hello is not self._hello:
                await self._learn(client, hello)
            yield client
        except TransportError as error:
            if self._hello is None:
                self.clock.missed(str(error))
            # An answer that did not come may mean a channel that is dead without knowing it. Others who wait on it
            # have heartbeats that find out; alone, we take a new one.
            if self._users == 1 and client.connected:
                await client.close()
            raise
        finally:
            self._users -= 1

    def _remark(self, about: str, text: str) -> None:
        """Something that a person should know of this device. Told once, however often it is found again."""
        if about not in self.remarks:
            self.remarks[about] = text
            if self.tell is not None:
                self.tell(text)

    async def _learn(self, client: AgentClient, hello: Hello) -> None:
        """On a new channel: the facts, and how far the clocks are apart."""
        if self._hello is not None and self._hello.boot_id != hello.boot_id:
            self._found.clear()  # rebooted: what was installed may be another thing now
            self.clock.forget()
        self._hello, self.facts = hello, hello.facts
        if text := logout.warning(self.device, hello.facts):
            self._remark("logout", text)
        if self.met is not None:
            self.met()
        await self.clock.read(client)

    async def vouch(self) -> None:
        """Look at the device, its clock included, before it takes work over. Those who ask meanwhile share one look."""
        if self._vouching is None or self._vouching.done():
            self._vouching = asyncio.get_running_loop().create_task(self.probe())
        await asyncio.shield(self._vouching)

    async def probe(self) -> None:
        """A sign of health, cheaply: the agent answers, its clock is read, its disk has room.

        Raises ``TransportError``, ``DeviceFault``."""
        async with self.client() as client:
            await self.clock.read(client)
            hello = client.hello
            argv = ["df", "-Pk", hello.state_dir if hello is not None else "/"]
            code, out, _ = await client.execute(argv, timeout_s=PROBE_S)
        free = _free_bytes(out) if code == 0 else None
        if free is not None and free < MIN_FREE_BYTES:
            raise DeviceFault(
                f"{self.device.id}: its disk has {free >> 20} MiB left where runs keep their files, they need "
                f"{MIN_FREE_BYTES >> 20}; make room, then run the same command again"
            )

    async def close(self) -> None:
        if self._vouching is not None:
            self._vouching.cancel()
        for task in self._found.values():
            task.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            await client.transport.close()  # what it kept between two channels

    async def found(self, workload: Workload) -> Found:
        """What discovery finds for this backend, asked once. A failure is not kept: it may be gone by the next try."""
        backend = workload.backend
        task = self._found.get(backend)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._discover(workload))
            self._found[backend] = task
        try:
            return await asyncio.shield(task)  # one who is cancelled must not end it for the others
        except BaseException:
            if task.done() and self._found.get(backend) is task:
                del self._found[backend]
            raise

    async def _discover(self, workload: Workload) -> Found:
        async with self.client():  # the facts are there before discovery asks for them
            return await workload.discover(self, self.device.backends.get(workload.backend, EMPTY))

    # -- DeviceView: what discovery may ask

    async def first_existing(self, paths: Sequence[str]) -> str | None:
        async with self.client() as client:
            for seen in await client.look(paths):
                if seen.kind == "unknown":
                    raise TransportError(f"{self.device.id}: could not look at {seen.path}: {seen.detail}")
                if seen.kind != "absent":
                    return seen.real
        return None

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> tuple[int, bytes, bytes]:
        async with self.client() as client:
            return await client.execute(argv, stdin=stdin, timeout_s=timeout_s, env=self.device.env)


async def _known(looking: Awaitable[Failure | None]) -> Failure | None:
    """What a look outside of the device finds; one that fails or lasts finds nothing."""
    with suppress(TransportError, DeviceFault, ConfigError, TimeoutError):
        async with asyncio.timeout(LOOK_S):
            return await looking
    return None


def _free_bytes(df: bytes) -> int | None:
    """What ``df -Pk`` says is left; None: it cannot be read, which is no reason to refuse a device."""
    lines = df.decode("utf-8", "replace").splitlines()
    fields = lines[-1].split() if len(lines) > 1 else []
    return int(fields[3]) * 1024 if len(fields) > 3 and fields[3].isascii() and fields[3].isdigit() else None


def agent_opener(campaign: str, client_id: str) -> OpenClient:
    """How devices are really reached: the agent over the transport of the device's kind."""

    def open_client(device: Device) -> AgentClient:
        from sidewinder import transports
        from sidewinder.transports.client import AgentClient

        # A client a device: two devices may be one account of one host (its two GPUs), where the newest front of a
        # client ends its older ones, and a start ends what its own client has left in the slot.
        return AgentClient(transports.open(device), campaign=campaign, client_id=f"{client_id}-{device.id}")

    return open_client
