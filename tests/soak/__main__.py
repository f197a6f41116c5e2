"""`make soak`: a long sweep on three hosts with every kind of bad luck, then every promise held against its files.

``SEED=`` deals the same points and faults again (their moments are the machine's), ``POINTS=`` says how many (1 000).
Prints the seed, what was done to the sweep, and a line for each promise; ends with 1 if one is broken. The evidence
stays in ``FOLDER=`` (default: a temporary folder, kept where something broke); ``python -m tests.soak FOLDER`` reads it
again. Needs root and the Debian packages that tests/netns/lab_hosts.py names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netns.lab_hosts import HOME, LabHosts, why_not
from soak import night
from soak.hosts import GROUP, HostChaos, devices_of
from soak.sweep import Sweep

HOSTS = ("h1", "h2", "h3")
DISK = "96m"  # of a host: a device wants 32 MiB free
POINTS = 1000
PATIENCE_S = 6.0
SHORT_PACE = {"gap_s": (1.5, 6.0), "kill_s": (0.1, 3.0), "limit": 2, "scale": 0.25}
OWN_MOUNTS = "SOAK_OWN_MOUNTS"


def soak(folder: Path, seed: int, points: int) -> None:
    """The sweep and its bad luck; leaves the evidence in ``folder``."""
    short = bool(os.environ.get("SHORT"))
    hosts = folder / "hosts"
    for name in HOSTS:
        (hosts / name).mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "none", str(hosts / name)]
        subprocess.run(mount, check=True)
    with LabHosts(hosts, len(HOSTS)) as lab:
        sweep = Sweep(folder, devices_of(lab), HOME, seed=seed, points=points, longest_s=0.8 if short else 2.0)
        chaos = HostChaos(lab, sweep, seed, **(SHORT_PACE if short else {}))
        night.spend(sweep, chaos, patience_s=PATIENCE_S)
        night.leave(
            sweep,
            chaos,
            seed=seed,
            settings={"hosts": HOSTS, "group": GROUP},
            witness={host.name: host.witness.folder for host in lab},
            left={host.name: [" ".join(argv) for argv in host.processes()] for host in lab},
        )
    for name in HOSTS:
        subprocess.run(["umount", "--lazy", str(hosts / name)], check=True)
    if chaos.errors:
        raise SystemExit(2)


def main() -> int:
    reason = why_not() if len(sys.argv) == 1 else None
    if reason:
        print(reason, file=sys.stderr)
        return 2
    if len(sys.argv) == 1 and not os.environ.get(OWN_MOUNTS):
        # mounts of its own: they go with it, however it ends
        os.environ[OWN_MOUNTS] = "1"
        again = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.soak"]
        os.execvp(again[0], again)
    return night.command("soak", POINTS, soak)


if __name__ == "__main__":
    sys.exit(main())
