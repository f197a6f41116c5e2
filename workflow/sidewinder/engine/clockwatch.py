"""A clock watch: how far a device's clock is off ours, read before, between and after its runs.

One reading is good to half a round trip (Cristian). What it was during a run is a straight line between the readings
around it: a clock drifts by some 100 ppm, so the reading before a run of an hour alone is worth little.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .clock import utc_now

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient

PROBES = 10  # the one with the shortest round trip counts
PROBES_HERE = 4  # the same clock: only to be sure
FRESH_S = 5.0  # so old a reading still is the one before a run that starts now
DRIFT_BOUND_PPM = 100.0  # a drift that is less certain says more about the readings than about the clock
KEPT = 256
WARN_S = 1.0  # M-130: beyond this, and beyond its own bound, an offset is worth a word
# Between two readings a clock moves by no more than both bounds, this and so many ppm, unless somebody has set it.
STEP_S = 0.1
SLEW_PPM = 500.0


class Reading(NamedTuple):
    """``offset_s``: device clock minus ours at ``at_s`` of our monotonic clock, certain within ``bound_s``."""

    at_s: float
    offset_s: float
    bound_s: float


class ClockWatch:
    """Of one device. ``is_here``: it is this machine, so it is read once a connection. ``tell`` gets the sentence for
    people when a reading is too far off, each time."""

    def __init__(self, *, is_here: bool, name: str = "", tell: Callable[[str], None] | None = None) -> None:
        self._is_here, self._name, self._tell = is_here, name or "this device", tell
        self._readings: deque[Reading] = deque(maxlen=KEPT)
        self._read_utc: str | None = None
        self._missed: str | None = None

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
        if self._readings and _was_set(self._readings[-1], reading):
            self._readings.clear()  # a line through a step is neither its drift nor its offset in between
        self._readings.append(reading)
        self._read_utc, self._missed = utc_now(), None
        if self._tell is not None and (warning := self.warning()):
            self._tell(warning)

    def missed(self, error: str) -> None:
        """The device could not be asked."""
        self._missed = error

    def forget(self) -> None:
        """The device was started anew: its clock is another one."""
        self._readings.clear()

    def now(self) -> dict[str, float] | None:
        """The newest reading, and what the clock gains on ours, where that can be told. None: never read."""
        if not self._readings:
            return None
        first, last = self._readings[0], self._readings[-1]
        told = {"offset_s": last.offset_s, "bound_s": last.bound_s, "round_trip_s": 2 * last.bound_s}
        apart_s = last.at_s - first.at_s
        if apart_s > 0:
            bound_ppm = (first.bound_s + last.bound_s) / apart_s * 1e6
            if bound_ppm <= DRIFT_BOUND_PPM:
                told["drift_ppm"] = (last.offset_s - first.offset_s) / apart_s * 1e6
                told["drift_bound_ppm"] = bound_ppm
        return told

    def entry(self) -> dict[str, Any]:
        """What ``schedule.json`` says of this clock (M-130). ``status``: ``ok``, ``unreachable`` (asked in vain, and
        never read before) or ``unknown`` (not asked yet)."""
        now = self.now()
        if now is None:
            return {"status": "unreachable", "error": self._missed} if self._missed else {"status": "unknown"}
        told = {"status": "ok", **now, "read_utc": self._read_utc}
        warning = self.warning()
        return {**told, "warning": warning} if warning else told

    def warning(self) -> str | None:
        """The sentence for people where the newest reading is too far off ours; None: it is not, or there is none."""
        if not self._readings:
            return None
        _, offset_s, bound_s = self._readings[-1]
        if abs(offset_s) <= max(WARN_S, bound_s):
            return None
        ahead = "ahead of" if offset_s > 0 else "behind"
        return (
            f"the clock of {self._name} is {abs(offset_s):.3f} s {ahead} ours (± {bound_s:.6f} s): "
            "times that it stamps are off by that, durations are not; is NTP running there, and here?"
        )

    def over_run(self, duration_s: float | None) -> dict[str, float] | None:
        """In the middle of a run that has just ended; ``bound_s`` covers all of it."""
        if not self._readings:
            return None
        after = self._readings[-1]
        duration_s = max(0.0, duration_s or 0.0)
        start_s = after.at_s - duration_s
        before = next((reading for reading in reversed(self._readings) if reading.at_s <= start_s), None)
        if not duration_s or before is None or before is after:
            return {"offset_s": after.offset_s, "bound_s": after.bound_s}
        slope = (after.offset_s - before.offset_s) / (after.at_s - before.at_s)
        half_s = duration_s / 2
        return {  # half-way of a line, and as far from it as the clock is at either end
            "offset_s": after.offset_s - slope * half_s,
            "bound_s": max(before.bound_s, after.bound_s) + abs(slope) * half_s,
        }


def _was_set(before: Reading, after: Reading) -> bool:
    """One of the two clocks was set between these readings."""
    may_s = before.bound_s + after.bound_s + STEP_S + SLEW_PPM / 1e6 * (after.at_s - before.at_s)
    return abs(after.offset_s - before.offset_s) > may_s
