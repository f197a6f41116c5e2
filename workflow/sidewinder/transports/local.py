"""The local transport: this machine, reached through the pipes of a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

from sidewinder.agent.source import BOOTSTRAP, PYTHON_FLAGS
from sidewinder.errors import DeviceFault, SidewinderError, TransportError
from sidewinder.model import Device

from .base import Channel

DIAGNOSTICS_BYTES = 8192
_GONE_S = 2.0


def translate(error: OSError, device: Device, python: str) -> SidewinderError:
    """The one table from what this operating system raises to our errors."""
    where = f"device {device.id!r}"
    if isinstance(error, FileNotFoundError):
        return DeviceFault(f"{where}: no such interpreter: {python}. Name another: devices.{device.id}.python")
    if isinstance(error, PermissionError):
        return DeviceFault(f"{where}: {python} cannot be executed. Name another: devices.{device.id}.python")
    if isinstance(error, (BrokenPipeError, ConnectionError)):
        return TransportError(f"{where}: the agent's front is gone")
    return TransportError(f"{where}: {error.strerror or error}")  # EAGAIN, EMFILE, ENOMEM: may pass


class LocalChannel:
    """The pipes to one front."""

    def __init__(self, process: asyncio.subprocess.Process, device: Device, python: str) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._device, self._python = device, python
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen(), name=f"agent stderr {device.id}")

    async def _listen(self) -> None:
        while data := await self._stderr.read(4096):
            self._said += data
            del self._said[:-DIAGNOSTICS_BYTES]

    async def read(self) -> bytes:
        try:
            return await self._stdout.read(1 << 18)
        except OSError as error:
            raise translate(error, self._device, self._python) from error

    async def write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
            await self._stdin.drain()
        except OSError as error:
            raise translate(error, self._device, self._python) from error

    async def exit_code(self) -> int | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GONE_S):
                await asyncio.shield(self._listener)  # its last words come before its end
                return await self.process.wait()
        return self.process.returncode

    async def close(self) -> None:
        self._stdin.close()
        try:
            async with asyncio.timeout(_GONE_S):
                await self.process.wait()
        except TimeoutError:
            # Only the front: a run belongs to its runner. The front is killed by itself, not by its group.
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            await self.process.wait()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        # Closes our ends of the pipes now, while the loop still runs.
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()

    def diagnostics(self) -> str:
        return bytes(self._said).decode("utf-8", "replace")


class LocalTransport:
    """Opens fronts as child processes, in a session of their own: Ctrl-C at the terminal is for the controller only."""

    def __init__(self, device: Device, *, state_dir: str | None = None, **agent_options: Any) -> None:
        self.device = device
        self.python = os.path.expanduser(device.python) if device.python else sys.executable
        state_dir = state_dir or device.settings.get("state_dir") or device.settings.get("workdir")
        self.agent_options: dict[str, Any] = {**agent_options, **({"state_dir": state_dir} if state_dir else {})}

    async def open(self) -> Channel:
        try:
            process = await asyncio.create_subprocess_exec(
                self.python,
                *PYTHON_FLAGS,
                "-c",
                BOOTSTRAP,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise translate(error, self.device, self.python) from error
        return LocalChannel(process, self.device, self.python)

    async def close(self) -> None:
        """Nothing is kept between channels."""
