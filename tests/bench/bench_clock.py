"""How well the clock of a device is known: estimates over SSH against the truth, on a host whose clock is 3.25 s ahead.

The host is a session of a real sshd under libfaketime. Truth is had without the link: with the monotonic clock left
alone by libfaketime every process reads the same one, so (wall - monotonic) of one under the same library minus
(wall - monotonic) of this one is the offset, as exactly as two readings of a clock can be taken close together.

    python tests/bench/bench_clock.py [ESTIMATES]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where sshd or libfaketime lacks.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from servers import line, servers

from sidewinder.model import Device
from sidewinder.transports.client import AgentClient
from sidewinder.transports.messages import ClockOffset
from sidewinder.transports.ssh import SshTransport

SHIFT_S = 3.25
PROBES = 10  # of one estimate, as the engine takes them


def faketime() -> str:
    for library in Path("/usr/lib").glob("*/faketime/libfaketime.so.1"):
        return str(library)
    print("bench_clock.py needs libfaketime: apt-get install libfaketime", file=sys.stderr)
    raise SystemExit(2)


def readings() -> tuple[int, int]:
    """How far apart the closest readings of the two clocks were in ns, and wall minus monotonic clock by them."""
    best = None
    for _ in range(2000):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, wall - (before + after) // 2)
    assert best is not None
    return best


def truth(environ: dict[str, str]) -> tuple[float, float]:
    """The offset in s, and by how much it may be wrong. Not asked through the agent: with the monotonic clock left
    alone this library lets no program sleep (Python 3.11 sleeps until a moment, and it moves that too)."""
    ours = readings()
    command = [sys.executable, __file__, "readings"]
    told = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, check=True)
    theirs = tuple(int(word) for word in told.stdout.split())
    return (theirs[1] - ours[1]) / 1e9, (theirs[0] + ours[0]) / 2e9


async def measure(device: Device, estimates: int) -> list[ClockOffset]:
    transport = SshTransport(device)
    client = AgentClient(transport, campaign="bench", client_id="bench")
    await client.connect()
    try:
        return [await client.clock(PROBES) for _ in range(estimates)]
    finally:
        await client.close()
        await transport.close()


def main() -> int:
    if sys.argv[1:] == ["readings"]:
        print(*readings())
        return 0
    estimates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    library = faketime()
    with servers(1) as (_, (server,)):
        shifted = {"LD_PRELOAD": library, "FAKETIME": f"+{SHIFT_S}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        variables = {"HOME": str(server.home), "XDG_CACHE_HOME": str(server.folder / "cache"), **shifted}
        server.stop()
        server.configure(f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}")
        server.start()
        true = [truth(shifted)]
        found = asyncio.run(measure(server.device(), estimates))
        true.append(truth(shifted))
    (before_s, unsure_s), (after_s, unsure_after_s) = true
    print(f"# true offset: {before_s:.7f} s before, {after_s:.7f} s after; unsure by {unsure_s * 1e6:.1f} us")
    slack_s = max(unsure_s, unsure_after_s) + abs(after_s - before_s)
    if abs(before_s - SHIFT_S) > 0.001 or slack_s > 10e-6:
        print(f"the host is not shifted by {SHIFT_S} s, or the truth is not known: {true}", file=sys.stderr)
        return 2
    offset_s = (before_s + after_s) / 2
    errors_s = [abs(one.offset_s - offset_s) for one in found]
    covered = sum(error <= one.bound_s for error, one in zip(errors_s, found, strict=True))
    met = line("clock_error_p50", statistics.median(errors_s) * 1e6, "us", 50)
    met &= line("clock_bound_misses", 100 * (1 - covered / len(found)), "%", 1)
    bound_us = statistics.median(one.bound_s for one in found) * 1e6
    print(f"# largest error {max(errors_s) * 1e6:.0f} us, bound p50 {bound_us:.0f} us, {len(found)} estimates")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
