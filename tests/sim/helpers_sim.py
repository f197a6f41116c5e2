"""What the simulation's test files share: batches of fresh seeds, and the kinds of bad luck that a batch must meet."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable

import pytest

from sidewinder.testing import Simulation, Violation

CAMPAIGNS = int(os.environ.get("CAMPAIGNS") or "5000")  # of each of the two files: 10 000 in a run of all tests
REPLAY = "SEED={seed} python -m tests.sim"

FAULTS = {
    "AskStatus failed",
    "Attach failed",
    "AttemptBusy",
    "AttemptDied measurement",
    "AttemptDied memory",
    "AttemptDied preempted",
    "AttemptDied transport",
    "AttemptRefused config",
    "AttemptRefused device",
    "AttemptRefused measurement",
    "AttemptRefused transport",
    "AttemptStale",
    "Kill failed",
    "KillUnproven",
    "Move refused",
    "Parse failed",
    "Probe failed",
    "StartAttempt failed",
    "call failed",
    "clock jump",
    "controller killed",
    "disk full",
    "drained by a person",
    "early timer",
    "late event",
    "late timer",
    "link healed within the lease",
    "link lost",
    "link lost for longer than the lease",
    "moved",
    "patience lost",
    "power cut",
    "quarantined",
    "slow answer",
    "stopped by a person",
    "timer fired twice",
    "torn line",
    "whole lines",
}


def replayed() -> bool:
    """``SEED=n`` replays that campaign alone."""
    seed = os.environ.get("SEED")
    if seed:
        Simulation(int(seed)).run()
    return bool(seed)


def batch(count: int, record_property: Callable[[str, object], None]) -> tuple[Counter[str], Counter[str]]:
    """Fresh seeds, told also when all is well (``tests/conftest.py``). Returns faults by kind and points by outcome."""
    first = secrets.randbelow(2**40)
    record_property("seeds", f"{count} campaigns, seeds {first} to {first + count - 1}; {REPLAY.format(seed='n')}")
    injected: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Violation as broken:
            pytest.fail(f"{broken}\nreplay it: {REPLAY.format(seed=seed)}", pytrace=False)
        injected += simulation.injected
        outcomes.update(record.outcome for record in simulation.disk.records.values())
    return injected, outcomes
