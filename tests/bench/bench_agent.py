"""What the agent costs: a point ``true`` with everything over a pipe, memory on the device, CPU while a run goes on.

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. A point is start, wait, fetch and
ack: lock, record, detached runner, workload, evidence, proof of death, result. CPU of the device's side is read from
the kernel's nanosecond accounts of front and runner.

    python tests/bench/bench_agent.py [POINTS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from workplace import workplace

from sidewinder.model import Device, Task
from sidewinder.transports.base import Transport
from sidewinder.transports.client import AgentClient
from sidewinder.transports.local import LocalChannel, LocalTransport

WARM_UP = 20
WATCHED_S = 6.0
HEARTBEAT_S = 1.0  # five times as often as the default: the worst case


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no memory")


def cpu_ns(pid: int) -> int:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


async def point(client: AgentClient, name: str) -> float:
    start_s = time.perf_counter()
    await client.start(name, 1, Task(("true",)))
    await client.wait(name, 1)
    raw = await client.fetch(name, 1)
    await client.ack(name, 1)
    if raw.returncode != 0:
        raise RuntimeError(f"{name}: {raw}")
    return time.perf_counter() - start_s


async def many(client: AgentClient, points: int) -> tuple[list[float], float]:
    """Wall seconds of each point after some that warm up, CPU seconds of this process for all of them."""
    for number in range(WARM_UP):
        await point(client, f"warm-{number}")
    cpu_s = time.process_time()
    walls = [await point(client, f"point-{number}") for number in range(points)]
    return walls, time.process_time() - cpu_s


async def measure_over(transport: Transport, points: int) -> tuple[list[float], float, float]:
    """Wall seconds of each point, CPU seconds of this process for all of them, seconds of connecting."""
    client = AgentClient(transport, campaign="bench", client_id="bench")
    began_s = time.perf_counter()
    await client.connect()
    connect_s = time.perf_counter() - began_s
    try:
        walls, cpu_s = await many(client, points)
    finally:
        await client.close()
        await transport.close()
    return walls, cpu_s, connect_s


async def measure(points: int) -> list[tuple[str, float, str, float]]:
    with workplace() as folder:
        state = str(folder / "agent")
        transport = LocalTransport(Device("here", "local"), state_dir=state)
        client = AgentClient(transport, campaign="bench", client_id="bench", heartbeat_s=HEARTBEAT_S)
        await client.connect()
        session = client._session
        if session is None or not isinstance(session.channel, LocalChannel):
            raise RuntimeError("no local channel")
        front = session.channel.process.pid
        try:
            walls, cpu_s = await many(client, points)
            front_mb = rss_mb(front)
            await client.start("long", 1, Task(("sleep", "1000")))
            waiting = asyncio.create_task(client.wait("long", 1))
            await asyncio.sleep(1.0)
            runner = json.loads((Path(state) / "runs/bench/long.1/proc.json").read_text())["runner"]
            before_ns, start_s = cpu_ns(front) + cpu_ns(runner), time.monotonic()
            await asyncio.sleep(WATCHED_S)
            used_s = (cpu_ns(front) + cpu_ns(runner) - before_ns) / 1e9
            share = 100 * used_s / (time.monotonic() - start_s)
            runner_mb = rss_mb(runner)
            await client.stop("long", 1)
            await waiting
        finally:
            await client.close()
    return [
        ("agent_point_wall_p50", statistics.median(walls) * 1e3, "ms", 15.0),
        ("agent_point_controller_cpu", cpu_s / points * 1e3, "ms", 2.0),
        ("agent_front_rss", front_mb, "MB", 15.0),
        ("agent_runner_rss", runner_mb, "MB", 15.0),
        ("agent_cpu_while_running", share, "%", 0.3),
    ]


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    figures = asyncio.run(measure(points))
    for name, value, unit, goal in figures:
        print(f"{name} {value:.2f} {unit} <={goal:g} {'ok' if value <= goal else 'short'}")
    return 0 if all(value <= goal for _, value, _, goal in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
