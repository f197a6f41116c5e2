"""The retry delay: how long a piece of work backs off after its n-th failure on the way (M-114)."""

from __future__ import annotations

from typing import Protocol

from sidewinder.model import RetryPolicy


class Random(Protocol):
    """The part of ``random.Random`` that the core uses; whoever owns the campaign seeds it."""

    def uniform(self, a: float, b: float, /) -> float: ...


def wait_s(policy: RetryPolicy, failures: int, rng: Random) -> float:
    """Seconds to wait after the ``failures``-th failure in a row (1: the first), never more than the cap + jitter.

    The jitter keeps devices that lost the same link from coming back in the same instant.
    """
    try:
        base = min(policy.backoff_s * policy.backoff_factor ** max(0, failures - 1), policy.max_backoff_s)
    except OverflowError:  # a factor of 10 reaches the largest float after 308 failures in a row
        base = policy.max_backoff_s
    spread = base * policy.jitter
    return max(0.0, base + rng.uniform(-spread, spread))
