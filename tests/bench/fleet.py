"""A fleet: one sweep of `true` over many devices through Snakemake, and what it cost its controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench_snakemake import PROFILE, Sweep, _watch_peak, give_up
from servers import line


class Cost(NamedTuple):
    """CPU is the controller's and of what it waited for; memory is the peak of the controller itself."""

    points: int
    cpu_s: float
    wall_s: float
    peak_bytes: int
    repeats: bool


def lab(devices: Mapping[str, Mapping[str, Any]], each: int) -> dict[str, Any]:
    block = {
        "backend": "command",
        "devices": list(devices),
        "command": ["true"],
        "parameters": {"n": list(range(each))},
    }
    return {"experiment": "bench", "devices": devices, "matrix": [block]}


def sweep(folder: Path, devices: Mapping[str, Mapping[str, Any]], points: int) -> Cost:
    """``folder`` is made. Exit code 2 where not every point is ok."""
    each = points // len(devices)
    one = Sweep(folder, 8)
    (one.folder / "config/lab.yaml").write_text(json.dumps(lab(devices, each)))  # JSON is YAML
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    began_s = time.monotonic()
    with open(one.folder / "log", "wb") as log:
        command = ["snakemake", "--executor", "sidewinder", *PROFILE, "--until", "measure"]
        process = subprocess.Popen(command, cwd=one.folder, env=environ, stdout=log, stderr=log)
        peak, stop = _watch_peak(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        stop.set()
    wall_s = time.monotonic() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        give_up(f"snakemake ended with {process.returncode}:\n{(one.folder / 'log').read_text()[-3000:]}")
    records = one.folder.glob("runs/bench/records/*/*.json")
    statuses = [json.loads(path.read_bytes())["status"] for path in records]
    if statuses != ["ok"] * (each * len(devices)):
        give_up(f"{statuses.count('ok')} of {each * len(devices)} points are ok")
    repeats = (one.folder / "runs/bench/retries.jsonl").exists()
    return Cost(len(statuses), usage.ru_utime + usage.ru_stime, wall_s, peak[0], repeats)


def tell(name: str, cost: Cost) -> bool:
    """Prints the two figures of a fleet; whether they keep their goals."""
    met = line(f"{name}_cores", cost.cpu_s / cost.wall_s, "cores", 1.0)
    met &= line(f"{name}_peak_memory", cost.peak_bytes / 1e6, "MB", 400)
    each_ms = 1000 * cost.cpu_s / cost.points
    print(
        f"# {cost.points} points in {cost.wall_s:.0f} s: {cost.cpu_s:.1f} CPU s, {each_ms:.1f} ms a point with "
        f"Snakemake's share: one core feeds {1000 / each_ms:.0f} points/s; {'some' if cost.repeats else 'no'} repeats"
    )
    return met
