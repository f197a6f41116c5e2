"""An exec: a command in a container, with its streams in one web socket.

The first byte of a message says which stream it belongs to. The command's end is a message of its own; a socket that
closes without it is a link that broke.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

    from .kubernetes_cluster import Cluster

STDIN: Final = b"\x00"
STDOUT: Final = 1
STDERR: Final = 2
STATUS: Final = 3
CLOSE_STDIN: Final = b"\xff\x00"  # of v5 alone; before it the socket must go with it
PIECE_BYTES: Final = 32_768
SAID_BYTES: Final = 8192
GONE_S: Final = 2.0
RUN_S: Final = 30.0


class Ended(NamedTuple):
    """``code``: None where the command was never started, or how it ended is not known; ``said``: why."""

    code: int | None
    said: str = ""


class Exec:
    """One command. ``read`` and ``write`` raise what aiohttp raises."""

    def __init__(self, socket: ClientWebSocketResponse[Any]) -> None:
        self._socket = socket
        self._out: deque[bytes] = deque()
        self._said = bytearray()
        self._arrived = asyncio.Event()
        self._writing = asyncio.Lock()
        self._pump = asyncio.create_task(self._receive(), name="exec stream")
        self.ended: Ended | None = None  # how the command ended
        self.why_closed = ""
        self.heard_s = asyncio.get_running_loop().time()  # when the other end was last known to take or give bytes
        self.is_lost = False

    async def _receive(self) -> None:
        from aiohttp import WSMsgType

        try:
            while True:
                message = await self._socket.receive()
                if message.type is not WSMsgType.BINARY:
                    reason = message.extra or message.data
                    self.why_closed = f"{message.type.name.lower()} {reason}" if reason else message.type.name.lower()
                    break
                self.heard_s = asyncio.get_running_loop().time()
                self._take(message.data[:1], message.data[1:])
        finally:
            self.is_lost = True
            self._arrived.set()

    def _take(self, stream: bytes, data: bytes) -> None:
        if not stream or not data:
            return  # each stream is greeted by an empty message
        if stream[0] == STDOUT:
            self._out.append(data)
            self._arrived.set()
        elif stream[0] == STDERR:
            self._said += data
            del self._said[:-SAID_BYTES]
        elif stream[0] == STATUS:
            self.ended = _ended(data)
            self._arrived.set()

    async def read(self) -> bytes:
        """The next bytes of stdout; empty: the command ended or the link broke (``ended`` tells which)."""
        while not self._out:
            if self.is_lost:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = b"".join(self._out)
        self._out.clear()
        return data

    async def write(self, data: bytes) -> None:
        """Whole: what two write at once does not get mixed. That much is taken is a sign of life; little is taken by
        the API server alone, also while the node is cut off."""
        async with self._writing:
            for start in range(0, len(data), PIECE_BYTES):
                await self._socket.send_bytes(STDIN + data[start : start + PIECE_BYTES])
                if len(data) > PIECE_BYTES:
                    self.heard_s = asyncio.get_running_loop().time()

    def lose(self, why: str) -> None:
        """Give the link up: whoever reads hears of it now."""
        self.why_closed = self.why_closed or why
        self._pump.cancel()

    async def close(self) -> None:
        """Bounded and never raising. The command sees the end of its input."""
        import aiohttp

        if not self.is_lost and self._socket.protocol == "v5.channel.k8s.io":
            with suppress(aiohttp.ClientError, OSError, TimeoutError):
                async with asyncio.timeout(GONE_S):
                    await self._socket.send_bytes(CLOSE_STDIN)
                    await asyncio.wait([self._pump])
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with asyncio.timeout(GONE_S):
                await self._socket.close()

    def said(self) -> str:
        return bytes(self._said).decode("utf-8", "replace")


def _ended(data: bytes) -> Ended:
    """What the status message says: an exit code only where it is one."""
    try:
        status = json.loads(data)
    except ValueError:
        return Ended(None, data[:300].decode("utf-8", "replace"))
    if status.get("status") == "Success":
        return Ended(0)
    said = str(status.get("message") or status.get("reason") or "")
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return Ended(int(cause["message"]), said)
    return Ended(None, said)


async def start(
    cluster: Cluster, pod_path: str, container: str, argv: Sequence[str], *, stdin: bool = True, is_again: bool = False
) -> Exec:
    """Raises what ``Cluster.stream`` raises; ``is_again`` as there."""
    query = {
        "container": container,
        "command": list(argv),
        "stdin": str(stdin).lower(),
        "stdout": "true",
        "stderr": "true",
        "tty": "false",
    }
    return Exec(await cluster.stream(f"{pod_path}/exec", query, is_again=is_again))


@asynccontextmanager
async def _started(cluster: Cluster, pod_path: str, container: str, argv: Sequence[str]) -> AsyncIterator[Exec]:
    one = await start(cluster, pod_path, container, argv, stdin=False)
    try:
        yield one
    finally:
        await one.close()


async def run(cluster: Cluster, pod_path: str, container: str, argv: Sequence[str]) -> tuple[Ended | None, bytes]:
    """A short command to its end, and its stdout. None for the end: the link broke, or it took too long."""
    async with _started(cluster, pod_path, container, argv) as one:
        out = bytearray()
        with suppress(TimeoutError):
            async with asyncio.timeout(RUN_S):
                while data := await one.read():
                    out += data
        return one.ended, bytes(out)
