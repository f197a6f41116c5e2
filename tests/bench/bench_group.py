"""What a dead member of a resource group costs a live one: how much later the live member's points start.

The live member is a real sshd on loopback. The dead one is a port that nobody listens on ("refused"), or a server that
takes the connection and never says a word ("silent"). With and without the dead member take turns in one run; a figure
is the median over the rounds of the latest start among the live member's four points, with minus without. mlsys, with
the same two devices and four points, starts the last of them after 14.5 s instead of at once.

    python tests/bench/bench_group.py [ROUNDS]

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where there is no sshd.
"""

from __future__ import annotations

import socket
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from servers import line, servers

from e2e.helpers_ssh import Sshd, free_port
from engine.helpers_engine import Told, command, make_plan
from sidewinder.engine import Engine
from sidewinder.model import Device, Policy

POINTS = 4
NOISE_S = 0.1  # two sweeps of this machine differ by so much, half a connection


class Started(Told):
    """Remembers when each point began."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: list[float] = []

    def on_started(self, key: Any, attempt: int) -> None:
        self.at_s.append(time.monotonic())
        super().on_started(key, attempt)


def latest_start(root: Path, server: Sshd, dead_port: int | None) -> float:
    """Seconds from the hand-over to the start of the live member's last point."""
    live = replace(server.device("live"), resource_group="board")
    devices = [live]
    if dead_port is not None:
        settings = {**live.settings, "port": dead_port}
        devices.append(Device("dead", "ssh", resource_group="board", settings=settings))
    # in this order: the dead member's points are there first
    points = [command("true", device=one.id, parameters={"n": n}) for n in range(POINTS) for one in reversed(devices)]
    plan = make_plan(root, points, devices=devices, policy=Policy())
    keys = {run_id: (str(root), run_id) for run_id in plan.points}
    live_keys = [keys[run_id] for run_id, point in plan.points.items() if point.device == "live"]
    told = Started()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    began_s = time.monotonic()
    engine.submit(list(keys.values()))
    told.until(lambda now: all(key in now.done for key in live_keys), "the live member's points are over")
    if any(told.done[key] != "ok" for key in live_keys):
        print(f"not all ok: {told.done}", file=sys.stderr)
        raise SystemExit(2)
    engine.cancel(False)
    engine.shutdown(60)
    return max(told.at_s) - began_s


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    met = True
    with servers(1) as (folder, (server,)), socket.create_server(("127.0.0.1", 0)) as silent:
        latest_start(folder / "warm", server, None)
        for name, port in (("refused", free_port()), ("silent", silent.getsockname()[1])):
            added_s, alone_s = [], []
            for number in range(rounds):
                alone_s.append(latest_start(folder / f"{name}-alone-{number}", server, None))
                added_s.append(latest_start(folder / f"{name}-{number}", server, port) - alone_s[-1])
            met &= line(f"group_{name}_member_added_wait", statistics.median(added_s), "s", NOISE_S)
            print(
                f"# {name}: {', '.join(f'{one:.2f}' for one in added_s)} s more than {statistics.median(alone_s):.2f} s"
            )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
