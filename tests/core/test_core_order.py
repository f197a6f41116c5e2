"""Order: interleaved visits every arm once per round, by seed; config keeps the plan"s order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidewinder.core.order import arm, positions
from sidewinder.errors import ConfigError
from sidewinder.model import Point

ARMS = ("q4", "q8", "f16", "q2")
RUN_IDS = [f"{a}-{i}" for a in ARMS for i in range(6)]  # the plan"s order: arm after arm
ARM_OF = {r: r.split("-")[0] for r in RUN_IDS}


def in_order(by: str, seed: int, run_ids: list[str] = RUN_IDS) -> list[str]:
    place = positions({"pi": run_ids}, by, seed, ARM_OF)
    return sorted(run_ids, key=lambda r: place[r])


def test_config_keeps_the_order_of_the_plan() -> None:
    assert in_order("config", 3) == RUN_IDS


@pytest.mark.parametrize("seed", range(20))
def test_every_arm_is_visited_once_per_round(seed: int) -> None:
    order = in_order("interleaved", seed)
    assert sorted(order) == sorted(RUN_IDS)
    for start in range(0, len(order), len(ARMS)):
        assert {ARM_OF[r] for r in order[start : start + len(ARMS)]} == set(ARMS)


def test_arms_change_their_order_between_rounds() -> None:
    order = in_order("interleaved", 1)
    rounds = {tuple(ARM_OF[r] for r in order[i : i + 4]) for i in range(0, len(order), 4)}
    assert len(rounds) > 1, "A B A B … only moves the bias from the block to the place within the round"


def test_the_seed_decides_and_the_plans_order_does_not() -> None:
    assert in_order("interleaved", 5) == in_order("interleaved", 5, RUN_IDS[::-1])
    assert in_order("interleaved", 5) != in_order("interleaved", 6)


def test_this_order_never_changes_between_versions() -> None:
    """A resumed sweep must find the positions that its records name, whatever Python runs it."""
    assert in_order("interleaved", 0)[:8] == GOLDEN


GOLDEN = ["q2-3", "q4-5", "q8-3", "f16-3", "f16-5", "q2-5", "q4-2", "q8-5"]


def test_devices_are_shuffled_apart() -> None:
    ids = {"a": [f"a{i}" for i in range(12)], "b": [f"b{i}" for i in range(12)]}
    place = positions(ids, "interleaved", 0)
    assert [place[f"a{i}"] for i in range(12)] != [place[f"b{i}"] for i in range(12)]


@given(st.lists(st.text(min_size=1), unique=True), st.integers(), st.sampled_from(["interleaved", "config"]))
def test_every_point_has_one_place(run_ids: list[str], seed: int, by: str) -> None:
    place = positions({"d": run_ids}, by, seed, {r: r[0] for r in run_ids})
    assert sorted(place.values()) == list(range(len(run_ids)))


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="interleaved or config"):
        positions({}, "random", 0)


def test_an_arm_is_what_is_measured_not_how() -> None:
    a = Point("r1", "e", "pi", "llama", "throughput", model="m", quantization="q4", threads=1, prompt_tokens=16)
    b = Point("r2", "e", "pi", "llama", "throughput", model="m", quantization="q4", threads=2, prompt_tokens=64)
    c = Point("r3", "e", "pi", "llama", "throughput", model="m", quantization="q8", threads=1, prompt_tokens=16)
    assert arm(a) == arm(b) != arm(c)
