"""What a fleet of pods costs its controller: 50 pods, 5 000 points, the whole sweep through Snakemake.

As `bench_fleet.py`, whose no-op is the same command `true`, with a pod for each device. The pods are there before the
sweep begins (`sidewinder devices up`): waiting for them would make the controller look idle. Cluster, pods and
controller share this machine's cores.

    python tests/bench/bench_kubernetes_fleet.py [DEVICES] [POINTS]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. CPU is the controller's and of
what it waited for, without cluster and pods; memory is the peak of the controller itself. Where no cluster can be had
it says which lines it left out, and why.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from bench_snakemake import give_up
from fleet import lab, sweep, tell
from pods import left_out, pods

from e2e.kubernetes.helpers_cluster import why_not

DEVICES, POINTS = 50, 5000
TINY = {"cpu": None, "cpu_request": "10m", "memory": None, "memory_request": "16Mi"}


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES
    points = int(sys.argv[2]) if len(sys.argv) > 2 else POINTS
    name = f"{count}_pods"
    if why := why_not():
        return left_out((f"{name}_cores", f"{name}_peak_memory"), why)
    with pods() as (folder, namespace):
        fleet = [namespace.device(f"d{number:02}", **TINY) for number in range(count)]
        devices = {one.id: {**one.settings, "kind": one.kind} for one in fleet}
        config = folder / "lab.json"
        config.write_text(json.dumps(lab(devices, 1)))
        began_s = time.monotonic()
        argv = ["devices", "up", "--configfile", str(config)]
        code = f"import sys; from sidewinder.cli import main; sys.exit(main({argv}))"
        up = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        if up.returncode:
            give_up(f"the pods were not had: {up.stderr[-3000:]}")
        print(f"# {count} pods were ready after {time.monotonic() - began_s:.0f} s", flush=True)
        cost = sweep(folder / "lab", devices, points)
    return 0 if tell(name, cost) else 1


if __name__ == "__main__":
    sys.exit(main())
