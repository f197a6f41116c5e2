"""A clock watch: how far a device's clock is off ours, read before, between and after its runs.

One reading is good to half a round trip (Cristian). What it was during a run is a straight line between the readings
around it: a clock drifts by some 100 ppm, so the reading before a run of an hour alone is worth little.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient

PROBES = 10  # the one with the shortest round trip counts
PROBES_HERE = 4  # the same clock: only to be sure
FRESH_S = 5.0  # so old a reading still is the one before a run that starts now
DRIFT_FROM_S = 60.0  # readings that are closer say more about their own error than about drift
KEPT = 256


class Reading(NamedTuple):
    """``offset_s``: device clock minus ours at ``at_s`` of our monotonic clock, certain within ``bound_s``."""

    at_s: float
    offset_s: float
    bound_s: float


class ClockWatch:
    """Of one device. ``is_here``: it is this machine, so it is read once a connection."""

    def __init__(self, *, is_here: bool) -> None:
        self._is_here = is_here
        self._readings: deque[Reading] = deque(maxlen=KEPT)

    async def read(self, client: AgentClient) -> None:
        """Raises ``TransportError``."""
        offset = await client.clock(PROBES_HERE if self._is_here else PROBES)
        self.take(Reading(time.monotonic(), offset.offset_s, offset.bound_s))

    async def before_run(self, client: AgentClient) -> None:
        if not self._is_here and not (self._readings and time.monotonic() - self._readings[-1].at_s <= FRESH_S):
            await self.read(client)

    async def after_run(self, client: AgentClient) -> None:
        if not self._is_here:
            await self.read(client)

    def take(self, reading: Reading) -> None:
        self._readings.append(reading)

    def forget(self) -> None:
        """The device was started anew: its clock is another one."""
        self._readings.clear()

    def now(self) -> dict[str, float] | None:
        """The newest reading, and what the clock gains on ours, where that can be told. None: never read."""
        if not self._readings:
            return None
        first, last = self._readings[0], self._readings[-1]
        told = {"offset_s": last.offset_s, "bound_s": last.bound_s}
        if last.at_s - first.at_s >= DRIFT_FROM_S:
            told["drift_ppm"] = (last.offset_s - first.offset_s) / (last.at_s - first.at_s) * 1e6
        return told

    def over_run(self, duration_s: float | None) -> dict[str, float] | None:
        """In the middle of a run that has just ended; ``bound_s`` covers all of it."""
        if not self._readings:
            return None
        after = self._readings[-1]
        start_s = after.at_s - (duration_s or 0.0)
        before = next((reading for reading in reversed(self._readings) if reading.at_s <= start_s), None)
        if not duration_s or before is None or before is after:
            return {"offset_s": after.offset_s, "bound_s": after.bound_s}
        slope = (after.offset_s - before.offset_s) / (after.at_s - before.at_s)
        half_s = duration_s / 2
        return {
            "offset_s": after.offset_s - slope * half_s,
            "bound_s": max(before.bound_s, after.bound_s) + abs(slope) * half_s,
        }
