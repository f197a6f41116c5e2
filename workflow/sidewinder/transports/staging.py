"""Staging: the content of a file of this machine is brought to a device, under its digest, and never twice.

The device keeps what arrived of a file whose transfer broke off, whoever sent it, so that a later one sends the rest.
Pieces travel on the agent's own channel, few at a time and of a size that the link carries within seconds: a heartbeat
of a run that goes on meanwhile waits behind them.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidewinder.agent.digests import DigestCache
from sidewinder.errors import ConfigError, DeviceFault, TransportError

if TYPE_CHECKING:
    from .client import AgentClient

RESERVE_BYTES: Final = 32 << 20  # what a run leaves on its device by itself (engine/devices.py) must fit still
PIECE_BYTES: Final = 1 << 20
FIRST_PIECE_BYTES: Final = 32 << 10
LEAST_PIECE_BYTES: Final = 16 << 10
WINDOW: Final = 4  # pieces on their way at a time
QUICK_S: Final = 1.0  # a piece that is answered sooner may be followed by larger ones,
LATE_S: Final = 4.0  # and one that is answered later by smaller ones: heartbeats have 15 s
CALL_S: Final = 30.0
SLOW_LINK_BYTES_S: Final = 20_000
SLOW_DISK_BYTES_S: Final = 2_000_000  # reading a whole file back
BUSY_POLL_S: Final = 0.2
MAX_ROUNDS: Final = 20  # of looking, sending and verifying, when other controllers keep throwing the partial away

Progress = Callable[[int], None]

_hashing: dict[str, threading.Lock] = {}


async def digest_of(path: str | Path, *, key: str | None = None) -> str:
    """SHA-256 of a file of this machine, in hex; remembered as long as the file does not change. Read in a thread.

    Raises ``ConfigError`` (about ``key``) where it is missing, no file or unreadable."""
    left = threading.Event()
    try:
        return await asyncio.to_thread(_digest_now, str(path), key, left)
    finally:
        left.set()


class _NobodyWaits(Exception):
    """Whoever asked for this digest was cancelled: a thread that reads 40 GB would keep the program from its end."""


def _digest_now(path: str, key: str | None, left: threading.Event) -> str:
    def between() -> None:
        if left.is_set():
            raise _NobodyWaits

    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for without end
            raise ConfigError("is not a file on this machine", key=key, value=path)
        # Many points name one model: whoever asks while it is read waits for that reading.
        with _hashing.setdefault(os.path.realpath(path), threading.Lock()):
            between()
            return DigestCache(_cache_folder()).sha256(path, between)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"cannot be read on this machine: {why}", key=key, value=path) from error


def _cache_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "sidewinder")


class _Seen(NamedTuple):
    """What lies on the device of one file."""

    whole: bool
    executable: bool
    have_bytes: int
    free_bytes: int
    folder: str


class _Transfer:
    """One file on its way, for all who want it."""

    def __init__(self, task: asyncio.Task[str], listeners: list[Progress]) -> None:
        self.task, self.listeners = task, listeners
        self.users = 0


class Stager:
    """All transfers of one client. Methods raise ``TransportError``, ``DeviceFault`` and, for what is wrong with the
    file on this machine, ``ConfigError``."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._transfers: dict[str, _Transfer] = {}

    async def stage(self, source: Path, sha256: str, progress: Progress | None = None) -> str:
        """Its path on the device. ``progress`` is told how many bytes are there: first what lay there, at last all."""
        transfer = self._transfers.get(sha256)
        if transfer is None:
            listeners: list[Progress] = []
            task = asyncio.create_task(self._bring(source, sha256, listeners), name=f"stage {source.name}")
            transfer = self._transfers[sha256] = _Transfer(task, listeners)
            task.add_done_callback(lambda _: self._forget(sha256, transfer))
        if progress is not None:
            transfer.listeners.append(progress)
        transfer.users += 1
        try:
            path = await asyncio.shield(transfer.task)  # one who is cancelled must not end it for the others
        finally:
            transfer.users -= 1
            if progress is not None:
                transfer.listeners.remove(progress)
            if not transfer.users and not transfer.task.done():
                self._forget(sha256, transfer)
                transfer.task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await transfer.task
        if _is_executable(source) and not (await self._look([(sha256, None)]))[sha256].executable:
            # the same content under another name was brought without that bit
            await self._commit(sha256, await _size_of(source), True)
        return path

    async def staged(self, sha256s: Sequence[str]) -> dict[str, str]:
        """Those that are there whole, with their paths."""
        found = await self._look([(sha256, None) for sha256 in sha256s])
        return {sha256: f"{seen.folder}/{sha256}" for sha256, seen in found.items() if seen.whole}

    def _forget(self, sha256: str, transfer: _Transfer) -> None:
        if transfer.task.done() and not transfer.task.cancelled():
            transfer.task.exception()  # seen: those who waited may all have left meanwhile
        if self._transfers.get(sha256) is transfer:
            del self._transfers[sha256]

    @property
    def _where(self) -> str:
        return f"device {self._client.device.id!r}"

    # -- the three questions

    async def _look(self, wanted: Sequence[tuple[str, int | None]]) -> dict[str, _Seen]:
        message, _ = await self._client.call("stage_look", wanted=[list(one) for one in wanted])
        return {
            one["sha256"]: _Seen(
                one["whole"], bool(one.get("executable")), one.get("have", 0), message["free_bytes"], message["path"]
            )
            for one in message["found"]
        }

    async def _append(self, sha256: str, size: int, offset: int, data: bytes) -> dict[str, Any]:
        message, _ = await self._client.call(
            "stage_append",
            blob=data,
            wait_s=CALL_S + WINDOW * len(data) / SLOW_LINK_BYTES_S,
            sha256=sha256,
            size=size,
            offset=offset,
        )
        return message

    async def _commit(self, sha256: str, size: int, executable: bool) -> dict[str, Any]:
        message, _ = await self._client.call(
            "stage_commit",
            wait_s=CALL_S + size / SLOW_DISK_BYTES_S,
            sha256=sha256,
            size=size,
            executable=executable,
        )
        return message

    # -- one transfer

    async def _bring(self, source: Path, sha256: str, listeners: list[Progress]) -> str:
        size = await _size_of(source)
        now_s = asyncio.get_running_loop().time
        patience_s = CALL_S + size / SLOW_DISK_BYTES_S
        busy_since_s: float | None = None
        damaged = ""
        for _ in range(MAX_ROUNDS):
            seen = (await self._look([(sha256, size)]))[sha256]
            if seen.whole:
                _tell(listeners, size)
                return f"{seen.folder}/{sha256}"
            _tell(listeners, min(seen.have_bytes, size))
            answer: dict[str, Any] = {}
            if seen.have_bytes < size:
                self._check_room(source, seen, size)
                answer = await self._send(source, sha256, size, seen.have_bytes, listeners)
            if not answer:
                answer = await self._commit(sha256, size, _is_executable(source))
            if "path" in answer:
                _tell(listeners, size)
                return str(answer["path"])
            if "wrong" in answer:
                if damaged:
                    raise await self._damaged(source, sha256, damaged)
                damaged = str(answer["wrong"])  # bytes of a crash, or of a file that changed: once more from the start
            elif "busy" in answer:
                # Another front verifies it; that takes as long as reading the file, and then it is whole, or gone.
                busy_since_s = busy_since_s or now_s()
                while now_s() - busy_since_s < patience_s and "busy" in answer:
                    await asyncio.sleep(BUSY_POLL_S)
                    answer = await self._commit(sha256, size, _is_executable(source))
                if "path" in answer:
                    _tell(listeners, size)
                    return str(answer["path"])
                if "busy" in answer:
                    raise TransportError(
                        f"{self._where}: {source} is held there by another transfer since {patience_s:.0f} s"
                    )
        raise TransportError(f"{self._where}: {source} was thrown away {MAX_ROUNDS} times while it was brought there")

    async def _send(
        self, source: Path, sha256: str, size: int, offset: int, listeners: list[Progress]
    ) -> dict[str, Any]:
        """Send what is missing. ``{}``: all is there; else the answer that stopped it."""
        now_s = asyncio.get_running_loop().time
        piece = FIRST_PIECE_BYTES
        flying: deque[tuple[asyncio.Task[dict[str, Any]], int, float]] = deque()
        fd = await _open(source)
        try:
            while True:
                while len(flying) < WINDOW and offset < size:
                    data = await asyncio.to_thread(os.pread, fd, min(piece, size - offset), offset)
                    if not data:
                        raise ConfigError("became shorter while it was brought to a device", value=str(source))
                    task = asyncio.create_task(self._append(sha256, size, offset, data))
                    offset += len(data)
                    flying.append((task, offset, now_s()))
                if not flying:
                    return {}
                task, end, sent_s = flying[0]
                answer = await task
                flying.popleft()
                if "busy" in answer:
                    return answer
                have = int(answer["have"])
                if have < end:
                    return {"short": True}  # somebody threw it away meanwhile
                offset = max(offset, have)  # somebody else is ahead of us: what he sent need not be sent
                _tell(listeners, have)
                took_s = now_s() - sent_s
                if took_s < QUICK_S:
                    piece = min(PIECE_BYTES, 2 * piece)
                elif took_s > LATE_S:
                    piece = max(LEAST_PIECE_BYTES, piece // 2)
        finally:
            os.close(fd)
            for task, _, _ in flying:
                task.cancel()
            await asyncio.gather(*(task for task, _, _ in flying), return_exceptions=True)

    def _check_room(self, source: Path, seen: _Seen, size: int) -> None:
        needed = size - min(seen.have_bytes, size)
        if seen.free_bytes < needed + RESERVE_BYTES:
            raise DeviceFault(
                f"{self._where}: no room for {source}: {needed} bytes are to be brought to {seen.folder} and "
                f"{RESERVE_BYTES} must stay free for runs, but only {seen.free_bytes} bytes are free there. Nothing "
                f"was sent. Make room, or name another folder: devices.{self._client.device.id}.workdir"
            )

    async def _damaged(self, source: Path, sha256: str, seen: str) -> Exception:
        here = await digest_of(source)
        if here != sha256:
            return ConfigError(
                f"changed while it was brought to {self._where}: its SHA-256 was {sha256} and is {here} now",
                value=str(source),
                hint="run the same command again when nobody writes to it any more",
            )
        return DeviceFault(
            f"{self._where}: {source} arrived damaged twice: its SHA-256 is {sha256} here, what lay there was {seen}. "
            "Look at that disk and its memory"
        )


def _tell(listeners: list[Progress], have: int) -> None:
    for listener in list(listeners):
        listener(have)


def _is_executable(source: Path) -> bool:
    with suppress(OSError):
        return bool(source.stat().st_mode & 0o111)
    return False


async def _size_of(source: Path) -> int:
    try:
        status = await asyncio.to_thread(os.stat, source)
    except OSError as error:
        raise _unreadable(source, error) from error
    return status.st_size


async def _open(source: Path) -> int:
    try:
        return await asyncio.to_thread(os.open, source, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(source, error) from error


def _unreadable(source: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot be read on this machine: {error.strerror or error}", value=str(source))
