"""A device whose disk is small and real: ``SCRIPT`` is for ``helpers_small_disk.run_on_small_disk``."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

from e2e.helpers_ssh import sshd
from sidewinder.errors import DeviceFault
from sidewinder.transports import open as open_transport
from sidewinder.transports.client import AgentClient

MIB = 1 << 20
SCRIPT = "from e2e import helpers_staging_disk; helpers_staging_disk.run()"


async def stage(client: AgentClient, source: Path, content: bytes) -> str:
    await asyncio.to_thread(source.write_bytes, content)
    try:
        await client.stage(source, hashlib.sha256(content).hexdigest())
    except DeviceFault as error:
        return str(error)
    return "staged"


async def main(disk: Path, here: Path) -> None:
    os.environ.update(HOME=str(here), XDG_CACHE_HOME=str(here / "cache"))
    os.environ.pop("SSH_AUTH_SOCK", None)
    with sshd(disk / "pi5") as server:
        client = AgentClient(open_transport(server.device()), campaign="c", client_id="small-disk")
        await client.connect()
        said = {"big": await stage(client, here / "big", os.urandom(20 * MIB))}
        said["left by big"] = sorted(os.listdir(server.state / "store"))
        said["small"] = await stage(client, here / "small", os.urandom(4 * MIB))
        await client.close()
        await client.transport.close()
    print(json.dumps(said))


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(sys.argv[1]), Path(folder)))
