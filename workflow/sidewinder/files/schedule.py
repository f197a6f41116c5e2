"""The schedule: ``schedule.json``, how the sweep went as a whole, replaced atomically as it changes (M-120).

Its content is the engine's; here it only gets its shape and its place.
"""

from __future__ import annotations

import json
from typing import Any, TypedDict

from . import atomic
from .layout import RunFolder


class Schedule(TypedDict, total=False):
    """The keys of M-120; devices and groups by name. Absent: not known, or nothing to tell."""

    mode: str
    requested: int
    skipped_already_done: int
    executed: int
    ok: int
    failed: int
    moved: int  # among the failed: holes whose copy another device took over
    elapsed_s: float
    by_device: dict[str, dict[str, int]]  # {ok, failed}
    concurrency: dict[str, int]
    resource_groups: dict[str, dict[str, Any]]  # {limit, devices}
    retry_policy: dict[str, Any]  # {max_attempts, backoff_s, backoff_factor, max_backoff_s, retried_only}
    transport_failures: int
    device_transport_failures: dict[str, int]  # each failure on the way and each failed probe; only those with one
    links_healed: dict[str, int]  # runs whose link broke, and that went on and came home; only devices with one
    breakers: dict[str, dict[str, Any]]  # {trips, recoveries, open_at_end, reason}; only those with a trip or recovery
    clock_offsets: dict[str, dict[str, Any]]  # {status, offset_s, bound_s, round_trip_s, drift_ppm, warning, ...}
    device_warnings: dict[str, list[str]]  # what a person was told about a device itself
    waiting: dict[str, dict[str, str]]  # {reason, since_utc} of a device that cannot be had yet, at this moment
    order: dict[str, Any]  # {by, seed}
    updated_utc: str


def publish(folder: str, schedule: Schedule, *, sync: bool = False, ops: atomic.FileOps = atomic.REAL) -> None:
    """Replace the schedule. Synced once, when the sweep ends; in between a power cut may show an older one."""
    data = json.dumps(schedule, indent=1, allow_nan=False).encode() + b"\n"
    atomic.publish(RunFolder(folder).schedule, data, sync=sync, what="schedule", ops=ops)


def read(folder: str) -> Schedule | None:
    """The last schedule; None where there is none or it cannot be read."""
    try:
        with open(RunFolder(folder).schedule, "rb") as file:
            value = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return None
    return Schedule(**value) if isinstance(value, dict) else None  # type: ignore[typeddict-item]
