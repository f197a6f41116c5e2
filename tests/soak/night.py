"""A night of the soak: the same command again and again under bad luck, then in peace, until nothing is left to do."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soak.chaos import Chaos
from soak.evidence import EVIDENCE, Evidence
from soak.promises import check
from soak.sweep import Sweep, write_lines

CALM = 6  # undisturbed invocations in a row that leave points open: then it is broken
SHORTEST_S = 600.0


def spend(sweep: Sweep, chaos: Chaos, *, patience_s: float) -> None:
    """The bad luck lasts ``patience_s`` for each point at most, then there is peace, whatever is open."""
    chaos.start()
    calm, end_s = 0, time.monotonic() + max(SHORTEST_S, len(sweep.points) * patience_s)
    try:
        while calm < CALM:
            code = sweep.invoke()
            sweep.accept()
            left = sweep.open_points()
            print(f"# invocation {len(sweep.invocations)} ended with {code}: {len(left)} points open, ", end="")
            print(f"{len(chaos.faults)} faults so far", flush=True)
            if code == -signal.SIGKILL and time.monotonic() < end_s:
                continue
            if calm and not left:
                break
            if calm or (not left and chaos.is_enough) or time.monotonic() > end_s:
                chaos.stop()
                calm += 1  # once more, in peace: it must find nothing to do, and make the report
    finally:
        chaos.stop()


def leave(
    sweep: Sweep,
    chaos: Chaos,
    *,
    seed: int,
    settings: Mapping[str, Any],
    witness: Mapping[str, Path],
    left: Mapping[str, list[str]],
) -> None:
    """The evidence, in the folder of the sweep. ``witness``: by device, where its runs left their traces; ``left``: by
    place, what still runs there."""
    evidence = sweep.folder / EVIDENCE
    evidence.mkdir()
    (evidence / "left.json").write_text(json.dumps(left))
    write_lines(evidence / "faults.jsonl", chaos.faults)
    write_lines(evidence / "invocations.jsonl", sweep.invocations)
    told = {
        "seed": seed,
        "points": sweep.points,
        "settings": settings,
        "wall_minus_monotonic_s": time.time() - time.monotonic(),
    }
    (evidence / "soak.json").write_text(json.dumps(told))
    for device, folder in witness.items():
        shutil.copytree(folder, evidence / "witness" / device)
    for text in chaos.errors:
        print(f"# a fault could not be dealt: {text}", file=sys.stderr)


def tell(folder: Path) -> int:
    """A line for each promise; 1 where one is broken."""
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


def command(name: str, points: int, soak: Callable[[Path, int, int], None]) -> int:
    """What `make` calls: SEED=, POINTS=, FOLDER=, or a folder whose evidence is read again."""
    if len(sys.argv) > 1:
        return tell(Path(sys.argv[1]))
    seed = int(os.environ.get("SEED") or secrets.randbelow(2**31))
    points = int(os.environ.get("POINTS") or points)
    folder = Path(os.environ.get("FOLDER") or tempfile.mkdtemp(prefix="sidewinder-soak-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    print(f"seed {seed}, {points} points, in {folder}", flush=True)
    print(f"again: make {name} SEED={seed} POINTS={points}", flush=True)
    soak(folder, seed, points)
    code = tell(folder)
    if not code and not os.environ.get("FOLDER"):
        shutil.rmtree(folder)
    return code
