"""The pure core against mlsys' scheduler, with a device that does nothing, in one process.

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. Both sides get the same points on
8 devices, without groups and in one resource group, and do all that their own scheduler does for a point: ours makes
every event and instruction of its life (claim, start, attach, parse, publish, ack, report), theirs queues, takes,
attempts, finishes and saves with a runner whose every method is empty. The two take turns within one run, because the
machine's mood changes faster than either of them: the median of the ratios of neighbours is what counts.

    python tests/bench/bench_core.py [POINTS] [ROUNDS]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from statistics import median
from types import SimpleNamespace
from typing import Any, NamedTuple

from mlsyslab.backends.base import RunSpec
from mlsyslab.scheduler import ConcurrentSweep, DevicePolicy

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.campaign import Campaign
from sidewinder.model import Device, Evidence, Policy

DEVICES = 8
OK = Evidence("done", 0)


class Took(NamedTuple):
    wall_s: float
    cpu_s: float


def ours(points: int, group: str | None) -> Took:
    """From the hand-over of all points to the last report."""
    campaign = Campaign(Policy(), random.Random(1))
    handle = campaign.handle
    for d in range(DEVICES):
        handle(ev.DeviceAdded(Device(f"d{d}", "local", resource_group=group, group_max_concurrency=1)), 0.0)
    works = tuple(ev.Work(f"w{i}", f"d{i % DEVICES}", position=i // DEVICES) for i in range(points))
    answers: dict[type, Any] = {
        do.Probe: lambda device: ev.ProbeAnswered(device, True),  # a member of a group is called before its first turn
        do.Journal: ev.Journaled,
        do.StartAttempt: ev.AttemptStarted,
        do.Attach: lambda attempt: ev.ResultArrived(attempt, OK),
        do.Parse: lambda attempt: ev.Parsed(attempt, None),
        do.Publish: ev.Published,
        do.Ack: ev.Acked,
    }
    done = 0
    wall, cpu = time.perf_counter(), time.process_time()
    todo = handle(ev.PointsQueued(works), 0.0)
    while todo:
        following = []
        for instruction in todo:
            answer = answers.get(type(instruction))
            if answer is not None:
                following += handle(answer(instruction[0]), 0.0)  # its attempt, or the work or device it is about
            elif type(instruction) is do.ReportDone:
                done += 1
        todo = following
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert done == points, f"{done} of {points} points were reported"
    return Took(wall, cpu)


class EmptyRunner:
    """The part of mlsys' Runner that its scheduler calls, doing nothing."""

    resume = False

    def __init__(self, output_dir: str) -> None:
        self.output_dir = output_dir
        self.config = SimpleNamespace(devices={}, models={}, specs=[])
        self.saved = 0

    def on_event(self, kind: str, payload: dict[str, Any]) -> None: ...

    def _write_manifest(self, specs: list[RunSpec]) -> None: ...

    def already_done(self, spec: RunSpec) -> bool:
        return False

    def attempt(self, spec: RunSpec) -> Any:
        record = SimpleNamespace(warnings=[], ok=True, error=None, device=SimpleNamespace(device_id=spec.device_id))
        return SimpleNamespace(failure_kind=None, record=record)

    def _save(self, spec: RunSpec, record: Any) -> None:
        self.saved += 1  # only an order of magnitude: eight threads count


def theirs(points: int, group: str | None) -> Took:
    policies = {f"d{d}": DevicePolicy(f"d{d}", resource_group=group, group_max_concurrency=1) for d in range(DEVICES)}
    specs = [
        RunSpec(experiment="bench", device_id=f"d{i % DEVICES}", backend="noop", model="m", mode="throughput")
        for i in range(points)
    ]
    with tempfile.TemporaryDirectory() as folder:
        sweep = ConcurrentSweep(EmptyRunner(folder), policies, rng_seed=1)
        wall, cpu = time.perf_counter(), time.process_time()
        result = sweep.run(specs, check_clocks=False)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(result.records) == points, f"{len(result.records)} of {points} points were recorded"
    return Took(wall, cpu)


def compare(name: str, group: str | None, points: int, rounds: int, goal: float, stretch: float) -> bool:
    pairs = [(ours(points, group), theirs(points, group)) for _ in range(rounds)]
    ratio = median(b.wall_s / a.wall_s for a, b in pairs)
    mine, mlsys = (points / median(pair[side].wall_s for pair in pairs) for side in (0, 1))
    my_cpu, mlsys_cpu = (points / median(pair[side].cpu_s for pair in pairs) for side in (0, 1))
    line(f"core_{name}_points_per_s", mine, "1/s", f">={goal * mlsys:.0f}", ratio >= goal)
    line(f"core_{name}_vs_mlsys", ratio, "ratio", f">={goal:g}", ratio >= goal)
    if stretch > goal:
        print(f"# {name}: hoped for {stretch:g} times mlsys ({'reached' if ratio >= stretch else 'not reached'})")
    print(f"# {name}: points/s by CPU time: ours {my_cpu:.0f}, mlsys {mlsys_cpu:.0f}")
    return ratio >= goal


def line(name: str, value: float, unit: str, goal: str, met: bool) -> None:
    print(f"{name} {value:.2f} {unit} {goal} {'ok' if met else 'short'}", flush=True)


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    met = compare("8_devices", None, points, rounds, 1.0, 2.0)
    met &= compare("one_group", "board", points // 2, rounds, 5.0, 5.0)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
