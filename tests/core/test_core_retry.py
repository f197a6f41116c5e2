"""Retry delays (M-114): 5, 10, 20 … capped at 120, each within a quarter, the same for the same seed."""

from __future__ import annotations

import random

import pytest

from sidewinder.core.retry import wait_s
from sidewinder.model import RetryPolicy


@pytest.mark.parametrize(
    ("failures", "base_s"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (6, 120), (7, 120), (999, 120)]
)
def test_delays_grow_to_the_cap_within_the_jitter(failures: int, base_s: float) -> None:
    rng = random.Random(4)
    drawn = [wait_s(RetryPolicy(), failures, rng) for _ in range(300)]
    assert base_s * 0.75 <= min(drawn) < base_s * 0.85
    assert base_s * 1.15 < max(drawn) <= base_s * 1.25


def test_a_seed_gives_the_same_delays() -> None:
    first, second = random.Random(7), random.Random(7)
    assert [wait_s(RetryPolicy(), n, first) for n in range(1, 6)] == [
        wait_s(RetryPolicy(), n, second) for n in range(1, 6)
    ]


def test_without_jitter_it_is_exact_and_huge_factors_end_at_the_cap() -> None:
    policy = RetryPolicy(backoff_s=1.0, backoff_factor=1e10, max_backoff_s=7.0, jitter=0.0)
    assert [wait_s(policy, n, random.Random(0)) for n in (1, 2, 500)] == [1.0, 7.0, 7.0]


def test_never_negative() -> None:
    assert min(wait_s(RetryPolicy(jitter=3.0), 1, random.Random(s)) for s in range(200)) == 0.0
