"""The wall clock: UTC for what is written down. Every wait is on the loop's monotonic clock and never on this one."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> str:
    """Now, with offset, to the millisecond: ``2026-11-30T12:00:00.123+00:00`` (never local time: B13)."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def utc_of(wall_ns: int) -> str:
    """A stamp of some machine's wall clock in the same form."""
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")
