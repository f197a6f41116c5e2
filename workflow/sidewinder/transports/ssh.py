"""The SSH transport: a machine reached over one kept SSH connection, an agent's front in a session on it.

The far command is constant; everything else travels over its stdin. No wait is unbounded, and no end of a session is
taken for anything but what its own exit status says.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

from sidewinder.agent.source import BOOTSTRAP, PYTHON_FLAGS
from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import Device

from .base import Channel
from .scope import wrapper
from .ssh_connection import GONE_S, Connection, Dialler, within
from .ssh_errors import Silent, translate, translate_lost

if TYPE_CHECKING:
    from asyncssh import SSHClientProcess

PYTHON = "python3"
DIAGNOSTICS_BYTES = 8192
READ_BYTES = 1 << 18
OPEN_S = 15.0  # keep-alive finds a dead link first
REFUSALS_S = (0.1, 0.2, 0.4, 0.8)  # sshd frees a session a moment after its end; then it is full indeed

_PLAIN = re.compile(r"(~/)?[A-Za-z0-9_./+:@%,-]+")
_QUOTABLE = re.compile(r"[^'\\!\n\r\0]+")


def far_command(device: Device) -> str:
    """The bootstrap command. It reads the same in bash, dash, zsh, fish and tcsh; their quoting differs beyond that."""
    python = device.python or PYTHON
    if not _PLAIN.fullmatch(python):
        home, rest = ("~/", python[2:]) if python.startswith("~/") else ("", python)
        if not _QUOTABLE.fullmatch(rest):
            raise ConfigError(
                "has a character that no quoting brings through every login shell",
                key=f"devices.{device.id}.python",
                value=python,
                hint="make a link with a plain name",
            )
        python = f"{home}'{rest}'"
    return f"exec {' '.join((*wrapper(device), python, *PYTHON_FLAGS))} -c '{BOOTSTRAP}'"


class SshChannel:
    """One session: the pipes to one front."""

    def __init__(self, process: SSHClientProcess[bytes], connection: Connection) -> None:
        self._process, self._connection = process, connection
        self._said = bytearray()
        self._is_closed = False
        self._listener = asyncio.create_task(self._listen(), name=f"agent stderr {connection.target.device.id}")

    async def _listen(self) -> None:
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):  # `read` tells of the loss
            while data := await self._process.stderr.read(4096):
                self._said += data
                del self._said[:-DIAGNOSTICS_BYTES]

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(READ_BYTES)
        except Exception as error:
            raise self._lost(error) from error

    async def write(self, data: bytes) -> None:
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except Exception as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> Exception:
        return translate_lost(error, self._connection.target) or error

    async def exit_code(self) -> int | None:
        # The end of stdout may come before the exit status does.
        await within(GONE_S, self._process.wait_closed())
        await within(GONE_S, asyncio.shield(self._listener))
        return self._process.returncode

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._connection.is_open:
                await self._end()
        finally:
            self._connection.sessions.release()
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _end(self) -> None:
        """A front leaves at the end of its input. One that does not is killed, and what does not even answer to that
        is a link to be given up: a session that hangs would hold its place on the connection for ever."""
        import asyncssh

        with contextlib.suppress(asyncssh.Error, OSError):
            self._process.stdin.write_eof()
        if await within(GONE_S, self._process.wait_closed()):
            return
        with contextlib.suppress(asyncssh.Error, OSError):
            self._process.kill()
            self._process.close()
        if not await within(GONE_S, self._process.wait_closed()):
            self._connection.ssh.abort()

    def diagnostics(self) -> str:
        return bytes(self._said).decode("utf-8", "replace")


class SshTransport:
    """Opens fronts in sessions of one kept connection."""

    def __init__(self, device: Device, *, state_dir: str | None = None, **agent_options: Any) -> None:
        self.device = device
        state_dir = state_dir or device.settings.get("state_dir") or device.settings.get("workdir")
        self.agent_options: dict[str, Any] = {**agent_options, **({"state_dir": state_dir} if state_dir else {})}
        self._dialler = Dialler(device)
        self._connection: Connection | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> Channel:
        """Raises ``ConfigError`` too: a key file that is not on the controller is nobody else's fault."""
        from asyncssh import ChannelOpenError

        command = far_command(self.device)
        async with self._opening:
            connection = await self._connected()
            for pause_s in (*REFUSALS_S, None):
                try:
                    return await self._session(connection, command)
                except TransportError as error:
                    refused = isinstance(error.__cause__, ChannelOpenError) and connection.is_open
                    if pause_s is None or not refused:
                        raise
                await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = None
            self._connection = await self._dialler.log_in()
        return self._connection

    async def _session(self, connection: Connection, command: str) -> SshChannel:
        try:
            async with asyncio.timeout(OPEN_S):
                await connection.sessions.acquire()
        except TimeoutError:
            raise TransportError(f"{connection.target}: all sessions were in use for {OPEN_S:g} s") from None
        try:
            process = await self._process(connection, command)
        except BaseException as error:
            connection.sessions.release()
            if not isinstance(error, Exception):
                raise
            ours = translate(error, connection.target)
            if ours is None:
                raise
            raise ours from error
        return SshChannel(process, connection)

    async def _process(self, connection: Connection, command: str) -> SSHClientProcess[bytes]:
        creating = asyncio.ensure_future(
            connection.ssh.create_process(command, encoding=None, request_pty=False, env={}, send_env=[])
        )
        try:
            async with asyncio.timeout(OPEN_S):
                return await asyncio.shield(creating)
        except BaseException as error:
            if not creating.done():
                # Cancelled in the middle, asyncssh forgets a session that the server may be opening: it would hold its
                # place for ever. The connection goes with it.
                creating.cancel()
                connection.ssh.abort()
                await asyncio.gather(creating, return_exceptions=True)
            if isinstance(error, TimeoutError) and not error.errno:
                raise Silent("no session was opened", OPEN_S) from None
            raise

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
        await self._dialler.leave()
