"""What a point costs over SSH: `true` with everything on a kept front, behind a real sshd on loopback.

Prints one line a figure: ``name value unit goal ok|short``; exits 1 if one is short, 2 where there is no sshd. A point
is start, wait, fetch and ack, as in `bench_agent.py`; between the two ends are a login that is kept, one session and
the encryption of both sides, all on this machine.

    python tests/bench/bench_ssh.py [POINTS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys

from bench_agent import measure_over
from servers import line, servers

from sidewinder.transports.ssh import SshTransport


def main() -> int:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with servers(1) as (_, (server,)):
        walls, cpu_s, connect_s = asyncio.run(measure_over(SshTransport(server.device()), points))
    met = line("ssh_true_p50", statistics.median(walls) * 1e3, "ms", 15.0)
    met &= line("ssh_true_controller_cpu", cpu_s / points * 1e3, "ms", 3.0)
    p95 = statistics.quantiles(walls, n=20)[-1]
    print(
        f"# fastest {min(walls) * 1e3:.1f}, p95 {p95 * 1e3:.1f} ms; connect, agent and facts {connect_s * 1e3:.0f} ms"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
