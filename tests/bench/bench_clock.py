"""How well the clock of a device is known: estimates over SSH against the truth, on a host whose clock is 3.25 s ahead.

The host is a session of a real sshd under libfaketime. Truth is had without the link: with the monotonic clock left
alone by libfaketime both sides read the same one, so (wall - monotonic) of the device minus (wall - monotonic) of this
process is the offset, as exactly as two readings of a clock can be taken close together.

    python tests/bench/bench_clock.py [ESTIMATES]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where sshd or libfaketime lacks.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

from servers import line, servers

from sidewinder.model import Device
from sidewinder.transports.client import AgentClient, ClockOffset
from sidewinder.transports.ssh import SshTransport

SHIFT_S = 3.25
PROBES = 10  # of one estimate, as the engine takes them
READINGS = """
import time
best = None
for _ in range(2000):
    before = time.monotonic_ns()
    wall = time.time_ns()
    after = time.monotonic_ns()
    if best is None or after - before < best[0]:
        best = (after - before, wall - (before + after) // 2)
print(*best)
"""


def faketime() -> str:
    for library in Path("/usr/lib").glob("*/faketime/libfaketime.so.1"):
        return str(library)
    print("bench_clock.py needs libfaketime: apt-get install libfaketime", file=sys.stderr)
    raise SystemExit(2)


def here() -> tuple[int, int]:
    """Wall minus monotonic clock of this process in ns, and how far apart the readings were."""
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as said:
        exec(READINGS, {})
    width, difference = said.getvalue().split()
    return int(width), int(difference)


async def truth(client: AgentClient) -> tuple[float, float]:
    """The offset in s, and by how much it may be wrong."""
    ours = here()
    told = await client.execute(["python3", "-S", "-c", READINGS])
    theirs = tuple(int(word) for word in told.stdout.split())
    return (theirs[1] - ours[1]) / 1e9, (theirs[0] + ours[0]) / 2e9


async def measure(device: Device, estimates: int) -> tuple[list[ClockOffset], list[tuple[float, float]]]:
    transport = SshTransport(device)
    client = AgentClient(transport, campaign="bench", client_id="bench")
    await client.connect()
    try:
        true = [await truth(client)]
        found = [await client.clock(PROBES) for _ in range(estimates)]
        true.append(await truth(client))
    finally:
        await client.close()
        await transport.close()
    return found, true


def main() -> int:
    estimates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    library = faketime()
    with servers(1) as (_, (server,)):
        shifted = f"LD_PRELOAD={library} FAKETIME=+{SHIFT_S} FAKETIME_DONT_FAKE_MONOTONIC=1"
        server.stop()
        server.configure(f"SetEnv HOME={server.home} XDG_CACHE_HOME={server.folder / 'cache'} {shifted}")
        server.start()
        found, true = asyncio.run(measure(server.device(), estimates))
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
