"""The journal: the one log of what the controller set in motion, from which a crashed sweep is taken up again.

A claim is on disk before its start is sent, so that after ``kill -9`` every attempt that may still run on a device is
known by name. Kinds of entries:

``claimed``   {run_id, n, device, boot?}      about to be started; ask the device before starting another
``boot``      {run_id, n, device, boot}       started in another boot of the device than was known at the claim
``died``      {run_id, n, device, class, cause, proof}   what it ran in is proven over, and it is to be repeated
``adopted``   {run_id, n, device}             a later controller found the attempt on the device
``ended``     {run_id, n, device, outcome}    nothing of this attempt runs any more
``breaker``   {device, state, reason, ...}    the device's health, whole; the last one counts (``breaker``)
others        retry, moved, quarantine, …     kept for people, skipped by ``replay``
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidewinder.model import AttemptId

from . import appendlog, atomic
from .layout import RunFolder


class Flight(NamedTuple):
    """An attempt that was claimed and never ended: it may run on the device at this moment."""

    n: int
    device: str
    boot: str | None = None  # of the device, where it may have forgotten what ran in another one (a pod)


@dataclass(slots=True)
class Replay:
    """What the journal says about the time before this controller."""

    in_flight: dict[str, Flight] = field(default_factory=dict)
    since: dict[str, int] = field(
        default_factory=dict
    )  # of what is in flight, or died: the first attempt that no record tells of
    highest: dict[str, int] = field(default_factory=dict)  # highest attempt ever claimed, by run id
    breakers: dict[str, dict[str, Any]] = field(default_factory=dict)  # last `breaker` entry, by device
    lines: int = 0
    torn: int = 0


class Journal(appendlog.AppendLog):
    """The writing end of a run folder's journal."""

    def __init__(self, folder: str, *, ops: atomic.FileOps = atomic.REAL) -> None:
        super().__init__(RunFolder(folder).journal, what="journal", ops=ops)


def claimed(attempt: AttemptId, device: str, at_utc: str, **more: Any) -> dict[str, Any]:
    return _entry("claimed", attempt, device, at_utc, more)


def boot(attempt: AttemptId, device: str, boot: str, at_utc: str) -> dict[str, Any]:
    return _entry("boot", attempt, device, at_utc, {"boot": boot})


def died(attempt: AttemptId, device: str, at_utc: str, **more: Any) -> dict[str, Any]:
    return _entry("died", attempt, device, at_utc, more)


def adopted(attempt: AttemptId, device: str, at_utc: str, **more: Any) -> dict[str, Any]:
    return _entry("adopted", attempt, device, at_utc, more)


def ended(attempt: AttemptId, device: str, outcome: str, at_utc: str, **more: Any) -> dict[str, Any]:
    return _entry("ended", attempt, device, at_utc, {"outcome": outcome, **more})


def breaker(device: str, state: str, at_utc: str, **more: Any) -> dict[str, Any]:
    """``state``: "closed" (takes points), "open" (down, to be probed), "quarantined". ``more``, as far as it is known:
    ``reason``, ``down_since_utc``, ``evidence`` (the last thing seen), ``failures``, ``next_probe_utc`` (absent: the
    next invocation probes), ``change`` (what happened)."""
    known = {key: value for key, value in more.items() if value is not None}
    return {"event": "breaker", "device": device, "state": state, "utc": at_utc, **known}


def _entry(event: str, attempt: AttemptId, device: str, at_utc: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": event, "run_id": attempt.work_id, "n": attempt.n, "device": device, "utc": at_utc, **more}


def replay(folder: str) -> Replay:
    """Read the journal. Lines that are torn or make no sense are counted and skipped."""
    seen = Replay()
    for entry in appendlog.read(RunFolder(folder).journal):
        seen.lines += 1
        if entry is None or not _apply(entry, seen):
            seen.torn += 1
    return seen


def _apply(entry: Mapping[str, Any], seen: Replay) -> bool:
    event, device = entry.get("event"), entry.get("device")
    if event == "breaker":
        if isinstance(device, str):
            seen.breakers[device] = dict(entry)
        return isinstance(device, str)
    if event not in ("claimed", "boot", "adopted", "died", "ended"):
        return isinstance(event, str)
    run_id, n = entry.get("run_id"), entry.get("n")
    if not (isinstance(run_id, str) and isinstance(n, int) and isinstance(device, str)):
        return False
    if n > seen.highest.get(run_id, 0):
        seen.highest[run_id] = n
    flying = seen.in_flight.get(run_id)
    if event == "ended":
        # A late line of an older attempt must not hide the one that may still run.
        if flying is None or flying.n <= n:
            seen.in_flight.pop(run_id, None)
            seen.since.pop(run_id, None)
    elif event == "died":
        if flying is not None and flying.n <= n:
            del seen.in_flight[run_id]  # its record is to come, and tells of it
    elif flying is None or flying.n <= n:
        known = flying.boot if flying is not None and flying.n == n else None
        found = entry.get("boot", known)
        seen.in_flight[run_id] = Flight(n, device, found if isinstance(found, str) else None)
        seen.since.setdefault(run_id, n)
    return True


def compact(folder: str, *, limit_bytes: int = 32 << 20, ops: atomic.FileOps = atomic.REAL) -> bool:
    """Bound the journal's size: past ``limit_bytes`` it becomes one line per run id (attempts only grow, so the highest
    must stay known), the flights and the breakers; the old one stays beside it as ``journal.old.jsonl``.

    Only for the exclusive holder of the run folder, before its ``Journal`` writes.
    """
    path = RunFolder(folder).journal
    try:
        size = os.path.getsize(path)
    except FileNotFoundError:
        return False
    if size <= limit_bytes:
        return False
    seen = replay(folder)
    lines: list[Mapping[str, Any]] = list(seen.breakers.values())
    for run_id, n in seen.highest.items():
        flight = seen.in_flight.get(run_id)
        lines.append({"event": "ended", "run_id": run_id, "n": n, "device": "", "outcome": "compacted"})
        if flight is not None:
            claimed = {"event": "claimed", "run_id": run_id, "device": flight.device}
            if flight.boot is not None:
                claimed["boot"] = flight.boot
            lines[-1:] = [{**claimed, "n": n} for n in sorted({seen.since[run_id], flight.n})]
        elif run_id in seen.since:
            first = {"event": "claimed", "run_id": run_id, "n": seen.since[run_id], "device": ""}
            lines[-1:] = [first, {"event": "died", "run_id": run_id, "n": n, "device": ""}]
    data = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    if 2 * len(data) > size:  # hardly anything to drop: doing it at every start would only lose the history
        return False
    old = path.removesuffix(".jsonl") + ".old.jsonl"
    try:
        if os.path.exists(old):
            ops.unlink(old)
        ops.link(path, old)
    except OSError:  # no hard links here: history for people is lost, nothing that decides
        pass
    atomic.publish(path, data, what="journal", ops=ops)
    return True
