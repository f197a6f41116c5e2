"""What a point costs in a pod: `true` with everything on a kept front, requests to the API server, a pod's start.

A point is start, wait, fetch and ack, as in `bench_ssh.py`; between the two ends are a web socket to the API server,
its stream to the kubelet and the container runtime, all on this machine. Requests are those of a whole engine with its
records, from the moment that every device has measured its first points to the last one; the watch counts.

    python tests/bench/bench_kubernetes.py [POINTS]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. Where no cluster can be had it
says which lines it left out, and why.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path

from bench_agent import measure_over
from pods import left_out, line, pods, until_told

from e2e.kubernetes.helpers_cluster import Namespace, why_not
from engine.helpers_engine import Told, command, make_plan
from sidewinder.engine import Engine
from sidewinder.model import Device
from sidewinder.transports import kubernetes_cluster
from sidewinder.transports.client import AgentClient
from sidewinder.transports.kubernetes import KubernetesTransport
from sidewinder.transports.kubernetes_pod import PodLife

WARM_UP = 20
DEVICES, EACH = 4, 250
STARTS = 5
NAMES = (
    "pod_true_p50",
    "pod_true_controller_cpu",
    "pod_requests_per_1000_points",
    "pod_created_to_first_point",
)


async def measure(device: Device, points: int) -> tuple[list[float], float, float]:
    """As `measure_over`, in a pod that is ready."""
    transport = KubernetesTransport(device)
    client = AgentClient(transport, campaign="bench", client_id="bench")
    await client.connect()
    await client.close()
    return await measure_over(transport, points)


def asked() -> int:
    """How many requests all clusters were sent that are in use in this process."""
    return sum(one.requests for here in list(kubernetes_cluster._clusters.values()) for one in here.values())


def steady(root: Path, devices: list[Device]) -> tuple[int, int, int, float]:
    """Requests in steady state, points measured meanwhile, requests before it, CPU seconds of the points."""
    points = [command("true", device=device.id, parameters={"n": n}) for device in devices for n in range(EACH)]
    plan = make_plan(root, points, devices=devices)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])

    def all_measure(now: Told) -> bool:
        done = [plan.points[run_id].device for _, run_id in now.done]
        return all(done.count(device.id) >= WARM_UP for device in devices)

    until_told(told, all_measure, "all measure")
    before, done, cpu_s = asked(), len(told.done), time.process_time()
    until_told(told, lambda now: len(now.done) == len(points), "all are done")
    after, cpu_s = asked(), time.process_time() - cpu_s
    engine.shutdown(60)
    if set(told.done.values()) != {"ok"}:
        print(f"not all ok: {told.failures}", file=sys.stderr)
        raise SystemExit(2)
    return after - before, len(points) - done, before, cpu_s


def start(root: Path, device: Device) -> float:
    """Seconds from the API server's answer that the pod is made to the news that the first point runs in it."""
    made_s: list[float] = []
    create = PodLife.create

    async def timed(life: PodLife) -> None:
        await create(life)
        made_s.append(time.monotonic())

    class Timed(Told):
        started_s = 0.0

        def on_started(self, key: object, attempt: int) -> None:
            self.started_s = time.monotonic()
            super().on_started(key, attempt)

    plan = make_plan(root, [command("true", device=device.id)], devices=[device])
    told = Timed()
    engine = Engine(told)
    PodLife.create = timed  # type: ignore[method-assign]
    try:
        engine.add_lab(str(root), plan)
        engine.submit([(str(root), run_id) for run_id in plan.points])
        until_told(told, lambda now: len(now.done) == 1, "the point is done")
    finally:
        PodLife.create = create  # type: ignore[method-assign]
        engine.shutdown(60)
    return told.started_s - made_s[0]


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    if why := why_not():
        return left_out(NAMES, why)
    with pods() as (folder, namespace):
        return figures(folder, namespace, points)


def figures(folder: Path, namespace: Namespace, points: int) -> int:
    small = {"cpu": None, "cpu_request": "100m", "memory": None, "memory_request": "32Mi"}
    walls, cpu_s, connect_s = asyncio.run(measure(namespace.device("one", **small), points))
    devices = [namespace.device(f"d{number}", **small) for number in range(DEVICES)]
    requests, measured, before, engine_cpu_s = steady(folder / "steady", devices)
    starts = [start(folder / f"start{n}", namespace.device(f"s{n}", **small)) for n in range(STARTS)]
    met = line("pod_true_p50", statistics.median(walls) * 1e3, "ms", 18.0)
    met &= line("pod_true_controller_cpu", cpu_s / points * 1e3, "ms", 3.0)
    met &= line("pod_requests_per_1000_points", 1000 * requests / measured, "requests", 20)
    met &= line("pod_created_to_first_point", statistics.median(starts), "s", 3.0)
    p95 = statistics.quantiles(walls, n=20)[-1]
    print(
        f"# fastest {min(walls) * 1e3:.1f}, p95 {p95 * 1e3:.1f} ms; to connect to a ready pod {connect_s * 1e3:.0f} ms"
    )
    print(f"# {requests} requests for {measured} points of {DEVICES} pods, {before} before them, ", end="")
    print(f"{1e3 * engine_cpu_s / measured:.1f} ms of CPU a point with the engine, records included")
    print(f"# from created to running {' '.join(f'{one:.2f}' for one in starts)} s")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
