"""What the tests of the SSH error table share: a call on a device that must fail, and conditions that it may meet."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import Sshd
from sidewinder import transports
from sidewinder.errors import SidewinderError
from sidewinder.model import Device
from sidewinder.transports.client import AgentClient

_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000  # CLONE_NEWNET, CLONE_NEWNS


@contextlib.contextmanager
def special(tmp_path: Path, *options: str) -> Iterator[Sshd]:
    """A server with options of its own."""
    one = Sshd(tmp_path / "special", options=options).start()
    try:
        yield one
    finally:
        one.stop()


async def hello(device: Device) -> Any:
    transport = transports.open(device)
    client = AgentClient(transport, campaign="c", client_id="me")
    try:
        return await client.connect()
    finally:
        await client.close()
        await transport.close()


def failure(device: Device) -> SidewinderError:
    """How the call ends; whatever it is, it names the device."""
    with pytest.raises(SidewinderError) as caught:
        asyncio.run(hello(device))
    assert f"device {device.id!r}" in str(caught.value) or f"devices.{device.id}" in str(caught.value)
    return caught.value


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("unshare") is None,
    reason="network and mount namespaces of one's own need root, iproute2 and util-linux",
)


def in_a_network_of_its_own(setup: str, body: Callable[[], Any]) -> Any:
    """``body()`` in a thread that sees only the network (and the mounts) that the shell script ``setup`` makes.

    Namespaces belong to a thread; those that it starts (a resolver's) inherit them, and all ends with it."""
    ended: list[Any] = []

    def run() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_NEW_NETWORK | _NEW_MOUNTS) != 0:
                raise OSError(ctypes.get_errno(), "unshare")
            script = f"set -e; mount --make-rprivate /; ip link set lo up; {setup}"
            subprocess.run(["sh", "-c", script], check=True)
            ended.append((body(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised where the test is
            ended.append((None, error))

    thread = threading.Thread(target=run, name="a network of its own")
    thread.start()
    thread.join()
    ((value, error),) = ended
    if error is not None:
        raise error
    return value
