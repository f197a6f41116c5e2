"""What the truth on disk costs: reading a plan, asking what is done, publishing records one by one with every sync.

Prints ``name value unit goal ok|short``; exits 1 if one is short.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workplace import workplace

from engine.helpers_engine import make_plan, noops
from sidewinder.files import plan as plan_file
from sidewinder.files import records
from sidewinder.files.done import Done
from sidewinder.model import Measurement

POINTS = 20_000


def cpu_s() -> float:
    return sum(os.times()[:2])


def main() -> int:
    figures = []
    with workplace() as folder:
        root = f"{folder}/run"
        plan = make_plan(root, noops(POINTS))
        before = cpu_s()
        plan_file.read(root)
        figures.append(("read_plan_20000", cpu_s() - before, 0.6))

        made = [
            records.build(
                point,
                plan.lab.devices[point.device],
                campaign=plan.campaign,
                versions={"sidewinder": "bench"},
                measurement=Measurement(True, metrics={"value": 1.0}),
            )
            for point in plan.points.values()
        ]
        before, began = cpu_s(), time.monotonic()
        for record in made:
            records.publish(root, "local", record["run_id"], record)
        figures.append(("publish_20000_records_synced", cpu_s() - before, 7.0))
        print(f"# publishing one by one took {1000 * (time.monotonic() - began) / POINTS:.2f} ms of wall time a record")

        before = cpu_s()
        left = sum(1 for _ in Done(root, plan).open_points())
        figures.append(("ask_what_is_done_20000", cpu_s() - before, 1.5))
        if left:
            raise SystemExit(f"{left} points are not done")
    for name, value, goal in figures:
        print(f"{name} {value:.2f} CPU_s <={goal:g} {'ok' if value <= goal else 'short'}")
    return int(any(value > goal for _, value, goal in figures))


if __name__ == "__main__":
    sys.exit(main())
