"""What the engine costs the controller per point: CPU seconds of this process, all of Snakemake left out.

``python tests/bench/bench_engine.py [POINTS]`` prints ``name value unit goal ok|short`` a line and exits 1 if one is
short. CPU time is user + system: other work on the machine disturbs it little.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from workplace import workplace

from engine.helpers_engine import Told, command, make_plan, noops
from sidewinder.engine import Engine
from sidewinder.ids import shard_id
from sidewinder.model import Device

NOOP_GOAL_MS = 0.8
TRUE_GOAL_MS = 5.0  # of which the agent may take 2 (bench_agent.py)
SHARD = 50


def cpu_s() -> float:
    return sum(os.times()[:2])


def through_engine(root: str, plan, *, shards: bool = False) -> float:
    """CPU seconds of this process for all points of ``plan``, connection and first point included."""
    run_ids = list(plan.points)
    before = cpu_s()
    told = Told()
    engine = Engine(told)
    engine.add_lab(root, plan)
    if shards:
        members = [run_ids[i : i + SHARD] for i in range(0, len(run_ids), SHARD)]
        for shard in members:
            engine.submit_shard(root, shard_id(shard), shard)
        told.wait(len(members))
    else:
        engine.submit([(root, run_id) for run_id in run_ids])
        told.wait(len(run_ids))
    if not engine.shutdown(60):
        raise SystemExit("the engine did not end")
    if set(told.done.values()) != {"ok"}:
        raise SystemExit(f"not all ok: {set(told.done.values())}")
    return cpu_s() - before


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    short = False

    def line(name: str, value: float, unit: str, goal: float) -> None:
        nonlocal short
        short = short or value > goal
        print(f"{name} {value:.3f} {unit} {goal} {'ok' if value <= goal else 'short'}")

    with workplace() as folder:
        plan = make_plan(f"{folder}/noop", noops(count))
        line("engine_cpu_per_noop_point", 1000 * through_engine(f"{folder}/noop", plan) / count, "ms", NOOP_GOAL_MS)

        plan = make_plan(f"{folder}/shards", noops(count))
        spent = through_engine(f"{folder}/shards", plan, shards=True)
        print(f"# in shards of {SHARD}: {1000 * spent / count:.3f} ms a point")

        local = Device("local", "local", settings={"state_dir": f"{folder}/agent"})
        # the agent's source is put together once a process: not a cost of a point
        through_engine(f"{folder}/warm", make_plan(f"{folder}/warm", [command("true")], devices=[local]))
        real = 200
        points = [command("true", parameters={"i": i}) for i in range(real)]
        plan = make_plan(f"{folder}/true", points, devices=[local])
        began = time.monotonic()
        spent = through_engine(f"{folder}/true", plan)
        wall_s = time.monotonic() - began
        line("engine_cpu_per_true_point", 1000 * spent / real, "ms", TRUE_GOAL_MS)
        print(f"# a point `true` with journal and record on this disk: {1000 * wall_s / real:.1f} ms of wall time")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
