"""What it costs to bring a file to an SSH device, behind a real sshd on loopback; and to find that it lies there.

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where there is no sshd. The
time runs from the first question to the verified file on the device; its digest on this machine is known by then. Both
ends, and the encryption of both, share this machine.

    python tests/bench/bench_staging.py [MIB]
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import statistics
import sys
import time
from pathlib import Path

from servers import line, servers

from sidewinder.model import Device
from sidewinder.transports.client import AgentClient
from sidewinder.transports.ssh import SshTransport

MIB = 1 << 20


async def measure(device: Device, source: Path, sha256: str) -> tuple[float, float, list[float]]:
    """Wall seconds and CPU seconds of this process for the transfer; wall seconds of asking again."""
    transport = SshTransport(device)
    client = AgentClient(transport, campaign="bench", client_id="bench")
    await client.connect()
    try:
        began_s, cpu_s = time.perf_counter(), time.process_time()
        await client.stage(source, sha256)
        wall_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        again = []
        for _ in range(50):
            began_s = time.perf_counter()
            await client.stage(source, sha256)
            again.append(time.perf_counter() - began_s)
    finally:
        await client.close()
        await transport.close()
    return wall_s, cpu_s, again


def main() -> int:
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else 512) * MIB
    with servers(1) as (folder, (server,)):
        digest, source = hashlib.sha256(), folder / "model"
        with source.open("wb") as file:
            for _ in range(size // MIB):
                piece = os.urandom(MIB)
                digest.update(piece)
                file.write(piece)
        wall_s, cpu_s, again = asyncio.run(measure(server.device(), source, digest.hexdigest()))
    gigabytes = size / 1e9
    met = line("staging_controller_cpu", cpu_s / gigabytes, "s/GB", 8.0)
    met &= line("staging_wall", wall_s / gigabytes, "s/GB", 25.0)
    met &= line("staging_lies_there_p50", statistics.median(again) * 1e3, "ms", 20.0)
    print(f"# {size / wall_s / 1e6:.0f} MB/s, verification on the device included")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
