"""What a plan costs: CPU seconds and bytes a point. Prints ``name value unit goal ok|short``; exits 1 if one is short.

Run it as ``python tests/bench/bench_expand.py``.
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from typing import Any

from sidewinder import config


def lab(points: int) -> dict[str, Any]:
    """``points`` points on 8 devices: 2 models, 5 thread counts, 5 prompts, the rest outputs."""
    devices = {f"rig-{number}": {"host": f"rig-{number}.lan", "env": {"OMP_PROC_BIND": "true"}} for number in range(8)}
    return {
        "experiment": "bench",
        "devices": devices,
        "models": {"q4": {"path": "models/q4.gguf", "quantization": "q4_1"}, "q8": "models/q8.gguf"},
        "defaults": {"backend": "noop", "repetitions": 5, "tags": ["bench"], "extra": {"timeout_s": 600}},
        "matrix": {
            "devices": list(devices),
            "models": ["q4", "q8"],
            "threads": [1, 2, 4, 8, 16],
            "prompt_tokens": [16, 64, 128, 256, 512],
            "output_tokens": list(range(1, points // 400 + 1)),
        },
    }


def cpu_s(points: int) -> float:
    asked = lab(points)
    gc.collect()
    before = time.process_time()
    plan = config.load(asked)
    spent = time.process_time() - before
    assert len(plan.points) == points
    return spent


def bytes_a_point(points: int) -> float:
    asked = lab(points)
    gc.collect()
    tracemalloc.start()
    plan = config.load(asked)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / len(plan.points)


def main() -> int:
    config.load(lab(400))  # imports
    figures = [
        ("expand_20000_points", cpu_s(20_000), "cpu_s", 1.5),
        ("expand_50000_points", cpu_s(50_000), "cpu_s", 4.0),
        ("plan_bytes_a_point", bytes_a_point(20_000), "bytes", 700),
    ]
    for name, value, unit, goal in figures:
        print(name, f"{value:.4g}", unit, f"{goal:g}", "ok" if value <= goal else "short")
    return int(any(value > goal for _, value, _, goal in figures))


if __name__ == "__main__":
    sys.exit(main())
