"""What a point costs in Snakemake: our executor against a bare one in the same run, nothing to do, memory, shards.

    python tests/bench/bench_snakemake.py                 the figures of docs/performance.md (a quarter of an hour)
    python tests/bench/bench_snakemake.py --points 200    small sizes first: 200 points, a shard sweep of 10 times that

Prints `name value unit goal ok|short`, one line each; exits 1 if one is short. CPU seconds are user + system of the
whole Snakemake process tree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple, NoReturn

from workplace import workplace

REPO = Path(__file__).resolve().parents[2]
DEVICES = 8
PROFILE = (
    *("--scheduler", "sidewinder", "-j", "unlimited", "--max-jobs-per-timespan", "1000000/1s", "--nolock"),
    *("--keep-going", "--rerun-triggers", "mtime", "--latency-wait", "0"),
)


class Cost(NamedTuple):
    cpu_s: float
    peak_bytes: int


class Figures:
    def __init__(self) -> None:
        self.short = 0

    def tell(self, name: str, value: float, unit: str, goal: float) -> None:
        ok = value <= goal
        self.short += not ok
        print(f"{name} {value:.2f} {unit} <={goal:g} {'ok' if ok else 'short'}", flush=True)


class Sweep:
    """A lab folder with `points` no-op points on eight devices of this machine."""

    def __init__(self, folder: Path, points: int, points_per_job: int = 1) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        shutil.copy(REPO / "Snakefile", folder)
        shutil.copytree(REPO / "rules", folder / "rules")
        (folder / "config").mkdir()
        devices = [f"d{number}" for number in range(DEVICES)]
        lines = ["experiment: bench", f"policy: {{points_per_job: {points_per_job}}}", "devices:"]
        lines += [f"  {device}: {{kind: local, resource_group: r{device}}}" for device in devices]
        each = points // DEVICES
        lines += [
            "matrix:",
            f"  - {{backend: noop, devices: [{', '.join(devices)}], parameters: {{n: {list(range(each))}}}}}",
        ]
        (folder / "config/lab.yaml").write_text("\n".join(lines) + "\n")
        # a bare executor is found by its name, as any plugin is
        plugin = folder / "plugins/snakemake_executor_plugin_bare"
        plugin.mkdir(parents=True)
        shutil.copy(REPO / "tests/bench/bare_executor.py", plugin / "__init__.py")

    def run(self, *args: str, executor: str = "sidewinder") -> Cost:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "PYTHONPATH": str(self.folder / "plugins")}
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                ["snakemake", "--executor", executor, *PROFILE, *args],
                cwd=self.folder,
                env=environ,
                stdout=log,
                stderr=log,
            )
            peak, stop = _watch_peak(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            stop.set()
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            tail = (self.folder / "log").read_text(errors="replace")[-3000:]
            give_up(f"snakemake ended with {process.returncode}:\n{tail}")
        return Cost(usage.ru_utime + usage.ru_stime, peak[0])

    @property
    def records(self) -> int:
        return sum(1 for _ in (self.folder / "runs/bench/records").glob("*/*.json"))


def one_job_a_point(figures: Figures, where: Path, points: int, largest: bool) -> None:
    """The measure jobs alone (`--until measure`): tables and report are the same rules under both executors."""
    points -= points % DEVICES
    start_up = Sweep(where / f"one-{points}", DEVICES).run("-n").cpu_s
    bare = Sweep(where / f"bare-{points}", points).run("--until", "measure", executor="bare")
    sweep = Sweep(where / f"points-{points}", points)
    ours = sweep.run("--until", "measure")
    if sweep.records != points:
        give_up(f"{sweep.records} of {points} records")
    ratio = (ours.cpu_s - start_up) / (bare.cpu_s - start_up)
    print(f"# {points} points: ours {ours.cpu_s:.1f} s, bare {bare.cpu_s:.1f} s, start-up {start_up:.1f} s", flush=True)
    figures.tell(f"noop_point_cost_{points}", ratio, "x_bare_executor", 1.5)
    whole = sweep.run()  # tables and report
    print(f"# {points} points: tables and report {whole.cpu_s:.1f} s, {whole.peak_bytes / 1e6:.0f} MB", flush=True)
    if largest:
        figures.tell(f"peak_memory_{points}", max(ours.peak_bytes, whole.peak_bytes) / 1e6, "MB", 500)
        figures.tell(f"nothing_to_do_{points}", sweep.run().cpu_s, "CPU_s", 15)


def shards(figures: Figures, where: Path, points: int, points_per_job: int) -> None:
    points -= points % DEVICES
    sweep = Sweep(where / "shards", points, points_per_job)
    dry = sweep.run("-n", "--quiet")
    ran = sweep.run("--until", "measure")
    if sweep.records != points:
        give_up(f"{sweep.records} of {points} records")
    whole = sweep.run()
    print(
        f"# {points} points in shards: tables and report {whole.cpu_s:.1f} s, {whole.peak_bytes / 1e6:.0f} MB",
        flush=True,
    )
    nothing = sweep.run()
    figures.tell(f"shards_dry_run_{points}", dry.cpu_s, "CPU_s", 10)
    figures.tell(f"shards_run_{points}", ran.cpu_s, "CPU_s", 20)
    figures.tell(f"shards_nothing_to_do_{points}", nothing.cpu_s, "CPU_s", 10)
    figures.tell(f"shards_peak_memory_{points}", max(dry.peak_bytes, ran.peak_bytes, whole.peak_bytes) / 1e6, "MB", 250)


def _watch_peak(pid: int) -> tuple[list[int], threading.Event]:
    """The peak memory of the controller itself, without the processes beside it (which `wait4` mixes in)."""
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            try:
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        peak[0] = int(line.split()[1]) * 1024
            except OSError:
                return

    threading.Thread(target=watch, daemon=True).start()
    return peak, stop


def give_up(text: str) -> NoReturn:
    """Exit code 2: a benchmark that broke is no short figure."""
    print(text, file=sys.stderr)
    raise SystemExit(2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, help="one small size instead of 1 000, 5 000 and 20 000")
    parser.add_argument("--only", choices=["points", "shards"])
    arguments = parser.parse_args()
    sizes = [arguments.points] if arguments.points else [1000, 5000, 20000]
    figures = Figures()
    with workplace() as folder:
        if arguments.only != "shards":
            for size in sizes:
                one_job_a_point(figures, folder, size, size == max(sizes))
        if arguments.only != "points":
            shards(figures, folder, arguments.points * 10 if arguments.points else 50000, 50)
    return 1 if figures.short else 0


if __name__ == "__main__":
    sys.exit(main())
