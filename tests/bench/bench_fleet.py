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

import sys

from fleet import sweep, tell
from servers import servers

DEVICES, POINTS = 50, 5000


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DEVICES
    points = int(sys.argv[2]) if len(sys.argv) > 2 else POINTS
    with servers(count) as (folder, fleet):
        devices = {f"d{number:02}": server.settings() for number, server in enumerate(fleet)}
        cost = sweep(folder / "lab", devices, points)
    return 0 if tell(f"ssh_{count}_devices", cost) else 1


if __name__ == "__main__":
    sys.exit(main())
