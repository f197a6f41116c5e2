"""What a cut cable costs a pod: how soon it is noticed, and how soon the result of a run that went on is here.

Four pods on one node whose cable is cut for 20 s. They are called a second and a bit one after the other, so that the
cut meets different moments of their keep-alive, and each has a run that ends while nobody can hear it. A figure is the
worst of the four.

    python tests/bench/bench_kubernetes_link.py

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short. Where there is no cluster whose
cables are ours to cut it says which lines it left out, and why.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from pathlib import Path

from pods import left_out, line, pods, until_told, why_no_cables
from watched import Watched

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import HELD, begun, inside
from engine.helpers_engine import command, make_plan
from sidewinder.engine import Engine
from sidewinder.model import Device

NODE = "node2"
LINKS = 4
APART_S = 1.3
DROP_S = 20.0
RUN_S = 12.0  # after the cut, before the return
NAMES = ("pod_link_noticed_after", "pod_link_back_to_result", "pod_link_runs_repeated")
RUN = f"{HELD}time.sleep({RUN_S})\n"


def drop(root: Path, namespace: Namespace, devices: list[Device]) -> tuple[list[float], list[float], int]:
    """Seconds until each loss was noticed, from the return to each result, and how many runs were too many."""
    plan = make_plan(root, [command("python3", "-c", RUN, device=one.id) for one in devices], devices=devices)
    keys = {point.device: (str(root), run_id) for run_id, point in plan.points.items()}
    pod = {device.id: f"sidewinder-{device.id}" for device in devices}
    told = Watched()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    for device in devices:
        engine.submit([keys[device.id]])
        until(lambda device=device: begun(namespace, pod[device.id]), f"{device.id} runs")
        time.sleep(APART_S)
    for device in devices:
        inside(namespace, "open('/sidewinder/go', 'w')", pod[device.id])
    namespace.cluster.node(NODE, "cut")
    cut_s = time.time()
    try:
        time.sleep(DROP_S)
    finally:
        namespace.cluster.node(NODE, "heal")
    back_s = time.time()
    until_told(told, lambda now: len(now.done) == len(devices), "all are done")
    engine.shutdown(60)
    ledger = [json.loads(text) for text in (root / "retries.jsonl").read_text().splitlines()]
    lost = [one for one in ledger if one["event"] == "link_lost"]
    missed_s = {one["device"]: datetime.fromisoformat(one["utc"]).timestamp() for one in reversed(lost)}
    if set(told.done.values()) != {"ok"} or len(missed_s) != len(devices):
        print(f"{told.done}: {told.failures}; ledger: {ledger}", file=sys.stderr)
        raise SystemExit(2)
    return (
        [missed_s[one.id] - cut_s for one in devices],
        [told.done_s[keys[one.id]] - back_s for one in devices],
        sum(begun(namespace, pod[one.id]) - 1 for one in devices),
    )


def main() -> int:
    if why := why_no_cables():
        return left_out(NAMES, why)
    with pods() as (folder, namespace):
        small = {"cpu": "100m", "memory": "64Mi", "node_name": NODE}
        devices = [namespace.device(f"d{number}", **small) for number in range(LINKS)]
        missed_s, fetched_s, again = drop(folder / "runs", namespace, devices)
    met = line("pod_link_noticed_after", max(missed_s), "s", 15)
    met &= line("pod_link_back_to_result", max(fetched_s), "s", 3)
    met &= line("pod_link_runs_repeated", again, "runs", 0)
    print(f"# noticed after {' '.join(f'{one:.1f}' for one in missed_s)} s, ", end="")
    print(f"results after {' '.join(f'{one:.2f}' for one in fetched_s)} s")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
