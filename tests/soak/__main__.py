"""`make soak`: a long sweep on three hosts with every kind of bad luck, then every promise held against its files.

``SEED=`` deals the same points and faults again (their moments are the machine's), ``POINTS=`` says how many (1 000).
Prints the seed, what was done to the sweep, and a line for each promise; ends with 1 if one is broken. The evidence
stays in ``FOLDER=`` (default: a temporary folder, kept where something broke); ``python -m tests.soak FOLDER`` reads it
again. Needs root and the Debian packages that tests/netns/lab_hosts.py names.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from netns.lab_hosts import LabHosts, why_not
from soak.chaos import Chaos
from soak.evidence import EVIDENCE, Evidence
from soak.promises import check
from soak.sweep import Sweep, write_lines

HOSTS = ("h1", "h2", "h3")
DISK = "96m"  # of a host: a device wants 32 MiB free
CALM = 6  # undisturbed invocations in a row that leave points open: then it is broken
PATIENCE_S = 6.0  # so long for each point the bad luck lasts, then there is peace, whatever is open
OWN_MOUNTS = "SOAK_OWN_MOUNTS"


def soak(folder: Path, seed: int, points: int, *, short: bool) -> None:
    """The sweep and its bad luck; leaves the evidence in ``folder``."""
    hosts = folder / "hosts"
    for name in HOSTS:
        (hosts / name).mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "none", str(hosts / name)]
        subprocess.run(mount, check=True)
    clocks = time.time() - time.monotonic()
    with LabHosts(hosts, len(HOSTS)) as lab:
        sweep = Sweep(folder, lab, seed, points, longest_s=0.8 if short else 2.0)
        pace = {"gap_s": (1.5, 6.0), "kill_s": (0.1, 3.0), "limit": 2, "scale": 0.25} if short else {}
        chaos = Chaos(lab, sweep, seed, **pace)  # type: ignore[arg-type]
        chaos.start()
        calm, end_s = 0, time.monotonic() + max(600.0, points * PATIENCE_S)
        while calm < CALM:
            code = sweep.invoke()
            sweep.accept()
            left = sweep.open_points()
            print(f"# invocation {len(sweep.invocations)} ended with {code}: {len(left)} points open, ", end="")
            print(f"{len(chaos.faults)} faults so far", flush=True)
            if code == -signal.SIGKILL:
                continue
            if calm and not left:
                break
            if calm or (not left and chaos.is_enough) or time.monotonic() > end_s:
                chaos.stop()
                calm += 1  # once more, in peace: it must find nothing to do, and make the report
        evidence = folder / EVIDENCE
        evidence.mkdir()
        (evidence / "left.json").write_text(
            json.dumps({host.name: [" ".join(argv) for argv in host.processes()] for host in lab})
        )
        write_lines(evidence / "faults.jsonl", chaos.faults)
        write_lines(evidence / "invocations.jsonl", sweep.invocations)
        told = {
            "seed": seed,
            "points": sweep.points,
            "settings": {"hosts": HOSTS, "group": HOSTS[:2]},
            "wall_minus_monotonic_s": clocks,
        }
        (evidence / "soak.json").write_text(json.dumps(told))
        for host in lab:
            shutil.copytree(host.witness.folder, evidence / "witness" / host.name)
        for text in chaos.errors:
            print(f"# a fault could not be dealt: {text}", file=sys.stderr)
    for name in HOSTS:
        subprocess.run(["umount", "--lazy", str(hosts / name)], check=True)
    if chaos.errors:
        raise SystemExit(2)


def tell(folder: Path) -> int:
    evidence = Evidence(folder)
    faults = Counter(fault.kind for fault in evidence.faults if fault.hit)
    missed = sum(not fault.hit for fault in evidence.faults)
    killed = sum(one["code"] == -9 for one in evidence.invocations)
    took_s = evidence.invocations[-1]["end_s"] - evidence.invocations[0]["start_s"]
    print(f"seed {evidence.seed}, {len(evidence.points)} points, {took_s:.0f} s")
    print(
        f"faults: {sum(faults.values())}: {', '.join(f'{count} {kind}' for kind, count in faults.most_common())}",
        end="",
    )
    print(f"; {missed} more hit nothing")
    print(f"invocations: {len(evidence.invocations)}, {killed} killed; executions: {len(evidence.executions)}")
    verdicts = check(evidence)
    for verdict in verdicts:
        print(verdict)
    return 1 if any(verdict.broken for verdict in verdicts) else 0


def main() -> int:
    if len(sys.argv) > 1:
        return tell(Path(sys.argv[1]))
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    if not os.environ.get(OWN_MOUNTS):
        # mounts of its own: they go with it, however it ends
        os.environ[OWN_MOUNTS] = "1"
        again = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.soak"]
        os.execvp(again[0], again)
    seed = int(os.environ.get("SEED") or secrets.randbelow(2**31))
    points = int(os.environ.get("POINTS") or 1000)
    folder = Path(os.environ.get("FOLDER") or tempfile.mkdtemp(prefix="sidewinder-soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    print(f"seed {seed}, {points} points, in {folder}", flush=True)
    soak(folder, seed, points, short=bool(os.environ.get("SHORT")))
    code = tell(folder)
    if not code and not os.environ.get("FOLDER"):
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
