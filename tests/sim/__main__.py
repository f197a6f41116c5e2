"""`make sim`: many seeded campaigns on every core of this machine; ends with 1 at the first broken promise.

``CAMPAIGNS=100000`` says how many, ``SEED=n`` replays one and shows it broken or whole.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections import Counter
from multiprocessing import Pool

from sidewinder.testing import Simulation, Violation

CHUNK = 100


def campaigns(first: int) -> tuple[int, Counter[str], Counter[str], str | None]:
    """One chunk: the first seed, faults by kind, outcomes of points, and what was broken."""
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        try:
            simulation = Simulation(seed).run()
        except Violation as broken:
            return first, faults, outcomes, f"seed {seed}: {broken}"
        faults += simulation.injected
        outcomes.update(simulation.disk.outcome.values())
    return first, faults, outcomes, None


def main() -> int:
    if seed := os.environ.get("SEED"):
        Simulation(int(seed)).run()
        print(f"seed {seed}: every promise held")
        return 0
    count = max(CHUNK, int(os.environ.get("CAMPAIGNS") or 10_000))
    first = secrets.randbelow(2**40)
    print(f"{count} campaigns, seeds {first} to {first + count - 1}; replay one with SEED=", flush=True)
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    started_s = time.monotonic()
    with Pool() as pool:
        for _, met, ended, broken in pool.imap_unordered(campaigns, range(first, first + count, CHUNK)):
            faults += met
            outcomes += ended
            if broken:
                print(broken, file=sys.stderr)
                return 1
    print("faults: " + ", ".join(f"{number} {kind}" for kind, number in sorted(faults.items())))
    print("points: " + ", ".join(f"{number} {kind}" for kind, number in sorted(outcomes.items())))
    print(f"0 violations in {time.monotonic() - started_s:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
