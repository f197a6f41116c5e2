"""Seeded campaigns: random devices, groups, points and faults; every promise held after every event.

Each run draws fresh seeds and prints the first. ``SEED=n`` replays one campaign, ``CAMPAIGNS=n`` changes how many.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter

from sidewinder.testing import Simulation

CAMPAIGNS = int(os.environ.get("CAMPAIGNS", "2000"))

#: Seeds that found something once. Kept for good.
REGRESSIONS = (0, 2, 237, 331, 343, 476, 525, 653, 661, 1275, 1623, 1855)


def test_the_promises_hold_whatever_happens() -> None:
    if seed := os.environ.get("SEED"):
        Simulation(int(seed)).run()
        return
    first = secrets.randbelow(2**40)
    print(f"seeds {first} … {first + CAMPAIGNS - 1}; replay one with SEED=")
    injected: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for seed_ in range(first, first + CAMPAIGNS):
        simulation = Simulation(seed_).run()
        injected += simulation.injected
        outcomes.update(simulation.disk.outcome.values())
    print(dict(injected), dict(outcomes))
    assert set(injected) == FAULTS, "the simulation must meet every kind of bad luck it knows"
    assert set(outcomes) == {"ok", "failed", "hole"}


FAULTS = {
    "AskStatus failed",
    "Attach failed",
    "Kill failed",
    "StartAttempt failed",
    "controller killed",
    "disk full",
    "early timer",
    "late event",
    "moved",
    "stopped by a person",
}


def test_seeds_that_once_found_something() -> None:
    for seed in REGRESSIONS:
        Simulation(seed).run()


def test_a_seed_replays_exactly() -> None:
    one, two = Simulation(77).run(), Simulation(77).run()
    assert one.events == two.events
    assert one.disk == two.disk
    assert one.injected == two.injected
