"""What a CPU quota does to a real model: llama in pods of 500m, 1 and 2 CPUs, and what their records say about it.

The model lies on this machine and is brought into each pod over its channel; the engine comes in the image. The pods
take turns, because they share the silicon. The figures are about runs of one thread, which a quota of 500m halves and
one of 1 CPU leaves alone; the chart shows runs of two threads, too.

    python tests/bench/bench_kubernetes_quota.py [CHART.svg]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. With an argument it draws the
chart of docs/kubernetes.md from the records. Where there is no cluster or no image it says which lines it left out, and
why.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from bench_snakemake import REPO, give_up
from pods import left_out, line, pods

from e2e.kubernetes.helpers_cluster import OPT_IN, Namespace, why_not
from sidewinder import config
from sidewinder.engine import run_points
from sidewinder.files import plan as plan_file
from sidewinder.workloads.llama import ENGINE

sys.path.insert(0, str(REPO / "scripts"))

from get_models import Q4, packaged

QUOTAS = {"cpu-500m": "500m", "cpu-1": "1", "cpu-2": "2"}
THREADS = (1, 2)
REPEATS = 3
IMAGE = "SIDEWINDER_TEST_LLAMA_IMAGE"
SLOWER = 0.75
NAMES = (
    "pod_decode_off_half",
    "pod_cpu_over_quota",
    "pod_decode_unexplained_by_cpu_time",
    "pod_decode_unexplained_by_throttle_count",
)


class Run(NamedTuple):
    """One point. ``cores``: CPU time a second; ``periods``: share of the quota's periods in which it was used up;
    ``held``: share of its time that it held a thread back. On a busy machine a run takes so long to use its quota up
    that little of the period is left to be held back in: the count tells of it all the same."""

    device: str
    quota: float
    threads: int
    decode_tps: float
    cores: float
    periods: float
    held: float
    node: str


def measure(folder: Path, namespace: Namespace, image: str) -> list[Run]:
    devices = {}
    for name, cpu in QUOTAS.items():
        # one request for all: the same weight beside neighbours, and room for three on nodes of two processors
        device = namespace.device(name, image=image, cpu=cpu, cpu_request="500m", memory="512Mi")
        devices[name] = {**device.settings, "kind": device.kind, "resource_group": "silicon"}
    block = {
        "backend": "llama",
        "mode": "throughput",
        "devices": list(devices),
        "models": ["smol"],
        "threads": list(THREADS),
        "prompt_tokens": 0,
        "output_tokens": 48,
        "repetitions": 3,
        "parameters": {"repeat": list(range(REPEATS))},
    }
    model = {"stage": str(packaged()), "sha256": Q4[1], "quantization": "q4_1"}
    lab = {"experiment": "quota", "devices": devices, "models": {"smol": model}, "matrix": [block]}
    root = str(folder / "runs")
    plan = plan_file.publish(root, config.load({**lab, "output_dir": root}))
    outcomes = run_points(root, plan, list(plan.points))
    bad = {run_id: told for run_id, told in outcomes.items() if told.outcome != "ok"}
    if bad:
        give_up(f"{len(bad)} of {len(outcomes)} points are not ok: {list(bad.items())[:3]}")
    paths = (folder / "runs" / "records").glob("*/*.json")
    return [run(json.loads(path.read_bytes())) for path in paths]


def run(record: dict[str, Any]) -> Run:
    device, threads, told = record["device"], record["knobs"]["threads"], record["conditions"]["cgroup"]
    quota, wall_s = device["placement"]["cpu_quota_cores"], record["conditions"]["wall_s"]
    return Run(
        device["device_id"],
        quota,
        threads,
        record["metrics"]["decode_tps"],
        record["conditions"]["cpu_s"] / wall_s,
        told["throttled_periods"] / max(1, told["periods"]),
        # the kernel adds up what each processor's queue was held back, and each thread has one
        told["throttled_us"] / 1e6 / wall_s / threads,
        device["pod"]["node"],
    )


def median(runs: list[Run], device: str, threads: int) -> Run:
    """The run whose rate is the median."""
    found = sorted(
        (one for one in runs if (one.device, one.threads) == (device, threads)), key=lambda one: one.decode_tps
    )
    return found[len(found) // 2]


def explained(one: Run, free: Run) -> float:
    """The rate that a run should have by the CPU time in its record, if a CPU second is worth what it was without a
    quota."""
    return free.decode_tps * one.cores / free.cores


def figures(runs: list[Run]) -> bool:
    half, one, free = (median(runs, device, 1) for device in QUOTAS)
    met = line("pod_decode_off_half", abs(half.decode_tps / one.decode_tps - 0.5), "of_one_cpu", 0.1)
    met &= line("pod_cpu_over_quota", max(each.cores / each.quota for each in runs), "x_quota", 1.05)
    off = max(abs(each.decode_tps / explained(each, free) - 1) for each in (half, one))
    met &= line("pod_decode_unexplained_by_cpu_time", 100 * off, "%", 15)
    # slower than without a quota, and not throttled; or throttled, and no slower
    odd = sum((each.decode_tps < SLOWER * free.decode_tps) != (each.periods > 0.5) for each in (half, one))
    met &= line("pod_decode_unexplained_by_throttle_count", odd, "pods", 0)
    for threads in THREADS:
        for device, cpu in QUOTAS.items():
            each = median(runs, device, threads)
            print(
                f"# {cpu:>4} CPU, {threads} thread{'s' if threads > 1 else ' '}: {each.decode_tps:5.1f} tokens/s at "
                f"{each.cores:.2f} cores; quota used up in {100 * each.periods:.0f} % of its periods, held back "
                f"{100 * each.held:.0f} % of the time ({each.node})"
            )
    return met


def main() -> int:
    if why := why_not():
        return left_out(NAMES, why)
    if os.environ.get(OPT_IN) == "1" and IMAGE not in os.environ:
        return left_out(NAMES, f"an image with {ENGINE} in its Python is named by {IMAGE}")
    with pods() as (folder, namespace):
        image = os.environ.get(IMAGE) or namespace.cluster.make_image("k8s.local/llama:1", ENGINE)
        runs = measure(folder, namespace, image)
    met = figures(runs)
    if len(sys.argv) > 1:
        from quota_chart import draw

        Path(sys.argv[1]).write_text(draw(runs, {threads: median(runs, "cpu-2", threads) for threads in THREADS}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
