"""`make sim`: many seeded campaigns on every core of this machine; ends with 1 at the first broken promise.

``CAMPAIGNS=100000`` says how many, ``SEED=n`` replays one, shows it broken or whole, and its last events if broken.
"""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import sys
import time
from collections import Counter
from multiprocessing import Pool

from sidewinder.testing import Simulation, Violation

CHUNK = 100
EVERY_S = 60.0


def campaigns(first: int) -> tuple[Counter[str], Counter[str], int, str | None]:
    """One chunk from this seed on: faults by kind, points by outcome, events, and what was broken."""
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    events = 0
    for seed in range(first, first + CHUNK):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Violation as broken:
            return faults, outcomes, events, str(broken)
        faults += simulation.injected
        outcomes.update(record.outcome for record in simulation.disk.records.values())
        events += simulation.events
    return faults, outcomes, events, None


def replay(seed: int) -> int:
    simulation = Simulation(seed)
    try:
        digest = simulation.digest()
    except Violation as broken:
        for at_s, event, made in simulation.recent:
            print(f"{at_s:12.3f} s  {event}")
            for instruction in made:
                print(f"{'':16}{instruction}")
        print(broken, file=sys.stderr)
        return 1
    print(f"seed {seed}: every promise held, {simulation.events} events, digest {digest}")
    return 0


def _worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main() -> int:
    if seed := os.environ.get("SEED"):
        return replay(int(seed))
    count = max(CHUNK, int(os.environ.get("CAMPAIGNS") or 100_000) // CHUNK * CHUNK)
    first = secrets.randbelow(2**40)
    print(
        f"{count} campaigns, seeds {first} to {first + count - 1}; replay one: SEED=n python -m tests.sim", flush=True
    )
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    done = events = 0
    started_s = told_s = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Pool(initializer=_worker) as pool, contextlib.suppress(KeyboardInterrupt):
        # Ctrl-C, SIGTERM: what was seen by then is told
        for met, ended, happened, broken in pool.imap_unordered(campaigns, range(first, first + count, CHUNK)):
            faults += met
            outcomes += ended
            events += happened
            done += CHUNK
            if broken:
                print(f"1 violation\n{broken}", file=sys.stderr)
                print(f"replay it: SEED={broken.split()[1].rstrip(',')} python -m tests.sim", file=sys.stderr)
                return 1
            if time.monotonic() - told_s > EVERY_S:
                told_s = time.monotonic()
                print(f"{done} campaigns after {told_s - started_s:.0f} s, 0 violations", flush=True)
        pool.close()
        pool.join()
    print("faults: " + ", ".join(f"{number} {kind}" for kind, number in sorted(faults.items())))
    print("points: " + ", ".join(f"{number} {kind}" for kind, number in sorted(outcomes.items())))
    own, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = own.ru_utime + theirs.ru_utime
    print(f"{done} campaigns, {events} events, 0 violations in {time.monotonic() - started_s:.0f} s, {cpu_s:.0f} CPU s")
    return 0 if done == count else 130


if __name__ == "__main__":
    sys.exit(main())
