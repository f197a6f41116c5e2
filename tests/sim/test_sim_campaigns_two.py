"""Seeded campaigns, the other half: as many again, in the other worker; and what a seed is worth."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sidewinder.testing import FakeDisk, Simulation
from sim.helpers_sim import CAMPAIGNS, FAULTS, batch, replayed

ROOT = Path(__file__).parents[2]


def test_the_promises_hold_whatever_happens(record_property: Callable[[str, object], None]) -> None:
    if replayed():
        return
    injected, outcomes = batch(CAMPAIGNS, record_property)
    met = set(injected)
    if CAMPAIGNS < 2000:
        return  # too few to meet everything
    assert met == FAULTS, f"the simulation must meet every kind of bad luck that it knows: {met ^ FAULTS}"
    assert set(outcomes) == {"ok", "failed", "hole"}


@pytest.mark.parametrize("seed", [77, 626, 4711])
def test_a_seed_replays_exactly(seed: int) -> None:
    assert Simulation(seed).digest() == Simulation(seed).digest()


def test_two_seeds_differ() -> None:
    assert Simulation(77).digest() != Simulation(78).digest()


def test_a_seed_replays_exactly_in_another_process_with_other_hashes() -> None:
    code = "from sidewinder.testing import Simulation; print(Simulation(626).digest())"
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == Simulation(626).digest()


def test_a_wall_clock_that_is_set_changes_nothing() -> None:
    for seed in range(200, 220):
        jumped = Simulation(seed)
        assert jumped.digest() == Simulation(seed, jumps=False).digest()


def test_make_sim_prints_seeds_faults_and_violations_and_replays_one() -> None:
    def sim(**env: str) -> subprocess.CompletedProcess[str]:
        clean = {name: value for name, value in os.environ.items() if name not in ("SEED", "CAMPAIGNS")}
        command = [sys.executable, "-m", "tests.sim"]
        return subprocess.run(command, cwd=ROOT, env={**clean, **env}, capture_output=True, text=True, check=False)

    many = sim(CAMPAIGNS="400")
    assert many.returncode == 0, many.stderr
    assert "400 campaigns, seeds " in many.stdout
    assert "link healed within the lease" in many.stdout
    assert "0 violations" in many.stdout
    one = sim(SEED="77")
    assert one.returncode == 0
    assert Simulation(77).digest()[:12] in one.stdout


def test_a_torn_journal_is_replayed_as_the_real_reader_does() -> None:
    torn = 0
    for seed in range(300, 400):
        disk = Simulation(seed).run().disk
        assert isinstance(disk, FakeDisk)
        replay = disk.replay()
        assert replay == disk.replay_as_a_file()
        torn += replay.torn
    assert torn, "some of these controllers died within a line"
