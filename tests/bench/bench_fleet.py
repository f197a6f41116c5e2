"""What a fleet costs its controller: 50 devices over SSH, 5 000 points, the whole sweep through Snakemake.

The no-op is the command `true`, the cheapest run there is on a device (the workload `noop` never leaves the
controller). Each device is a real sshd on loopback with keys, home folder and agent state of its own. They all share
this machine's cores, so the sweep takes as long as its devices do: CPU a point says what one core of a controller could
feed.

    python tests/bench/bench_fleet.py [DEVICES] [POINTS]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where there is no sshd. CPU is
the controller's and of what it waited for, without sshd and agents; memory is the peak of the controller itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench_snakemake import PROFILE, Sweep, _watch_peak, give_up
from servers import line, servers

from e2e.helpers_ssh import Sshd

DEVICES, POINTS = 50, 5000


def lab(fleet: list[Sshd], points: int) -> dict[str, Any]:
    devices = {f"d{number:02}": server.settings() for number, server in enumerate(fleet)}
    return {
        "experiment": "bench",
        "devices": devices,
        "matrix": [
            {
                "backend": "command",
                "devices": list(devices),
                "command": ["true"],
                "parameters": {"n": list(range(points // len(fleet)))},
            }
        ],
    }


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES
    points = (int(sys.argv[2]) if len(sys.argv) > 2 else POINTS) // count * count
    with servers(count) as (folder, fleet):
        sweep = Sweep(folder / "lab", 8)
        (sweep.folder / "config/lab.yaml").write_text(json.dumps(lab(fleet, points)))  # JSON is YAML
        environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        began_s = time.monotonic()
        with open(sweep.folder / "log", "wb") as log:
            command = ["snakemake", "--executor", "sidewinder", *PROFILE, "--until", "measure"]
            process = subprocess.Popen(command, cwd=sweep.folder, env=environ, stdout=log, stderr=log)
            peak, stop = _watch_peak(process.pid)
            _, status, usage = os.wait4(process.pid, 0)
            stop.set()
        wall_s = time.monotonic() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            give_up(f"snakemake ended with {process.returncode}:\n{(sweep.folder / 'log').read_text()[-3000:]}")
        statuses = [
            json.loads(path.read_bytes())["status"] for path in sweep.folder.glob("runs/bench/records/*/*.json")
        ]
        if statuses != ["ok"] * points:
            give_up(f"{statuses.count('ok')} of {points} points are ok")
        lost = (sweep.folder / "runs/bench/retries.jsonl").exists()
    cpu_s = usage.ru_utime + usage.ru_stime
    met = line(f"ssh_{count}_devices_cores", cpu_s / wall_s, "cores", 1.0)
    met &= line(f"ssh_{count}_devices_peak_memory", peak[0] / 1e6, "MB", 400)
    each_ms = 1000 * cpu_s / points
    print(
        f"# {points} points in {wall_s:.0f} s: {cpu_s:.1f} CPU s, {each_ms:.1f} ms a point with Snakemake's share: ",
        end="",
    )
    print(f"one core feeds {1000 / each_ms:.0f} points/s; {'some' if lost else 'no'} repeats")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
