"""The wall clock: UTC for what is written down. Every wait is on the loop's monotonic clock and never on this one."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time_ns

_second: tuple[int, str] = (-1, "")  # the last second that was asked for, and its text: asked several times a point


def utc_now() -> str:
    """Now, with offset, to the millisecond: ``2026-11-30T12:00:00.123+00:00`` (never local time: B13)."""
    global _second
    seconds, rest_ns = divmod(time_ns(), 1_000_000_000)
    known, text = _second
    if known != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        _second = (seconds, text)
    return f"{text}.{rest_ns // 1_000_000:03d}+00:00"


def utc_of(wall_ns: int) -> str:
    """A stamp of some machine's wall clock in the same form."""
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def utc_in(seconds: float) -> str:
    """What the wall clock says in (minus: said before) so many seconds, if nobody sets it: for people."""
    return _text_of(time_ns() + round(seconds * 1e3) * 1_000_000)


def seconds_since(utc: object) -> float:
    """How long ago a time that somebody wrote down was, for people; 0 for what is none, or lies ahead."""
    try:
        since = datetime.fromisoformat(str(utc))
        return max(0.0, time_ns() / 1e9 - since.astimezone(UTC).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0.0


def _text_of(wall_ns: int) -> str:
    seconds, rest_ns = divmod(wall_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest_ns // 1_000_000:03d}+00:00"
