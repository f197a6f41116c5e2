"""A fake clock: monotonic time that a test advances, and wall time that a test can make jump."""

from __future__ import annotations

import datetime


class FakeClock:
    def __init__(self, start: datetime.datetime | None = None) -> None:
        self.monotonic_s = 0.0
        self.utc = start or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks."""
        if seconds < 0:
            raise ValueError(f"monotonic time does not go back ({seconds} s)")
        self.monotonic_s += seconds
        self.utc += datetime.timedelta(seconds=seconds)

    def advance_to(self, monotonic_s: float) -> None:
        self.advance(monotonic_s - self.monotonic_s)

    def jump(self, seconds: float) -> None:
        """The wall clock is set forward or back (NTP, a person, a suspend); monotonic time does not notice."""
        self.utc += datetime.timedelta(seconds=seconds)
