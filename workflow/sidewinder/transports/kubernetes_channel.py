"""The pod's channel: the streams of one front in a container, watched for silence.

Pings of the stream itself are answered by an API server that stands in between, so the front is asked: by a frame that
any front answers, under a number that no call has, while nothing else is said.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Final

from sidewinder.agent.source import PYTHON_FLAGS
from sidewinder.errors import SidewinderError, TransportError

from .frames import encode
from .kubernetes_exec import Exec, run
from .kubernetes_pod import PodLife
from .kubernetes_spec import python_of
from .kubernetes_verdict import Container

PING_S: Final = 4.0
SILENT_S: Final = 12.0  # then the link counts as lost
STATUS_LATE_S: Final = 3.0
_PING: Final = encode({"op": "ping", "id": -1})
NOT_FOUND: Final = 127
KILLED: Final = 128  # and above: by that signal


class PodChannel:
    def __init__(self, stream: Exec, life: PodLife, container: Container) -> None:
        self._stream, self._life, self._container = stream, life, container
        self._has_spoken = False
        self.began_s = asyncio.get_running_loop().time()
        self.ended_s: float | None = None  # from then on nothing was said to the front
        self._guard = asyncio.create_task(self._watch_silence(), name=f"silence of {life.device.id}")

    async def read(self) -> bytes:
        data = await self._stream.read()
        if data:
            self._has_spoken = True
            return data
        self._is_over()
        ended = self._stream.ended
        if ended is not None and (ended.code is None or ended.code < KILLED):
            return b""
        raise TransportError(f"{self._life.where}: link lost: {await self._why()}")

    @property
    def was_killed(self) -> bool:
        """The node says that the front ended by SIGKILL, as everything does with its container. A signal that can be
        handled may have ended the front and not the run."""
        ended = self._stream.ended
        return ended is not None and ended.code == KILLED + signal.SIGKILL

    def _is_over(self) -> None:
        if self.ended_s is None:
            self.ended_s = asyncio.get_running_loop().time()

    async def write(self, data: bytes) -> None:
        import aiohttp

        try:
            await self._stream.write(data)
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(f"{self._life.where}: link lost: {error or type(error).__name__}") from error

    async def _watch_silence(self) -> None:
        import aiohttp

        loop = asyncio.get_running_loop()
        while not self._stream.is_lost:
            await asyncio.sleep(PING_S / 4)
            silent_s = loop.time() - self._stream.heard_s
            if silent_s > SILENT_S:
                self._stream.lose(f"nothing was heard of the container for {silent_s:.0f} s")
            elif silent_s > PING_S and self._has_spoken:  # before it speaks it takes its source from stdin
                # A dead link takes small things for a long time, and a full one none: neither may hold us up here.
                with suppress(aiohttp.ClientError, OSError, TimeoutError):
                    async with asyncio.timeout(PING_S):
                        await self._stream.write(_PING)

    async def _why(self) -> str:
        """What broke the stream: only the API server knows whether the pod is still there."""
        ended = self._stream.ended
        what = (
            f"the front was killed ({ended.code})" if ended is not None else self._stream.why_closed or "it broke off"
        )
        try:
            async with self._life.translated():
                return f"{what}; {await self._life.what_became(self._container)}"
        except SidewinderError as error:
            return f"{what}; what became of the pod cannot be asked: {error}"

    async def exit_code(self) -> int | None:
        ended = self._stream.ended
        if ended is not None and ended.code is not None:
            return ended.code if ended.code < KILLED else None  # by a signal: that says nothing about its Python
        # Never started, or a stream that broke under the source that was on its way to a command that never started.
        return NOT_FOUND if not self._has_spoken and await self._cannot_start() else None

    async def _cannot_start(self) -> bool:
        """Whether the runtime cannot start this Python in a container that lives on.

        Asked twice: a container that ended a moment ago refuses likewise, and its pod's status tells of that late."""
        argv = [python_of(self._life.device), *PYTHON_FLAGS, "-c", ""]
        with suppress(SidewinderError):
            async with self._life.translated():
                await asyncio.sleep(STATUS_LATE_S)
                path = await self._life.path(f"/{self._life.name}")
                ended, _ = await run(self._life.cluster, path, self._life.container, argv)
                if ended is None or ended.code is not None:
                    return False
                await asyncio.sleep(STATUS_LATE_S)
                pod = await self._life.find()
                now = self._life.ready(pod) if pod is not None else None
                return now is not None and now[1].identity == self._container.identity
        return False

    async def close(self) -> None:
        self._guard.cancel()
        await asyncio.gather(self._guard, return_exceptions=True)
        await self._stream.close()
        self._is_over()

    def diagnostics(self) -> str:
        ended = self._stream.ended
        return " ".join(part for part in (self._stream.said(), ended.said if ended is not None else "") if part)
