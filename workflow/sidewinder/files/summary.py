"""A summary: how much of a plan is measured, and for every open point why, and what would close it.

One computation for the dry run, the report, the exit code and the CLI, so that they cannot disagree.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sidewinder.model import FailureClass, Plan

from . import raw
from .done import Done
from .layout import RunFolder

_LOG_TAIL_BYTES: Final = 16_384


@dataclass(slots=True)
class Counts:
    """Points of one device (or of all): ``planned`` is the sum of the others; ``never`` includes broken records."""

    planned: int = 0
    done: int = 0
    failed: int = 0
    never: int = 0
    accepted: int = 0

    def add(self, other: Counts) -> None:
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    @property
    def open(self) -> int:
        return self.failed + self.never


@dataclass(frozen=True, slots=True)
class Hole:
    """One open point. ``status``: failed (measured, said no), hole, missing or broken (never measured)."""

    device: str
    run_id: str
    status: str
    failure_class: str
    reason: str
    log: tuple[str, ...]
    command: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "run_id": self.run_id,
            "status": self.status,
            "class": self.failure_class,
            "reason": self.reason,
            "log": list(self.log),
            "command": self.command,
        }


@dataclass(slots=True)
class Summary:
    """``by_device`` is in the lab's order and names only devices with selected points. ``accepted`` are failures that
    one has decided to live with: closed, still shown."""

    by_device: dict[str, Counts] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    accepted: list[Hole] = field(default_factory=list)

    @property
    def total(self) -> Counts:
        total = Counts()
        for counts in self.by_device.values():
            total.add(counts)
        return total

    @property
    def is_complete(self) -> bool:
        return not self.holes

    def lines(self) -> list[str]:
        """One line a device, for the dry run."""
        width = max((len(device) for device in self.by_device), default=0)
        return [
            f"{device:<{width}}  {c.planned} planned, {c.done} done, {c.failed} failed, {c.never} never measured"
            + (f", {c.accepted} accepted" if c.accepted else "")
            for device, c in self.by_device.items()
        ]


def summarise(folder: str, plan: Plan, done: Done | None = None, *, details: bool = True) -> Summary:
    """Look at every selected point. ``done``: a look that somebody took already; ``details=False`` reads no record of
    an open point, for those who only count."""
    done = done if done is not None else Done(folder, plan)
    found: dict[str, Counts] = {}
    holes: list[Hole] = []
    accepted: list[Hole] = []
    for run_id, point in plan.points.items():
        if not plan.is_selected(run_id):
            continue
        counts = found.get(point.device)
        if counts is None:
            counts = found[point.device] = Counts()
        counts.planned += 1
        status = done.status(run_id)
        if status == "ok":
            counts.done += 1
            continue
        hole = _hole(folder, point.device, run_id, status, details)
        if done.is_done(run_id):
            counts.accepted += 1
            accepted.append(hole)
            continue
        if status == "failed":
            counts.failed += 1
        else:
            counts.never += 1
        holes.append(hole)
    order = [*plan.lab.devices, *found]
    return Summary({device: found[device] for device in dict.fromkeys(order) if device in found}, holes, accepted)


def rerun_command(folder: str, device: str, run_id: str) -> str:
    """The command that measures exactly this point again, from where the sweep was started."""
    return f"sidewinder measure {shlex.quote(RunFolder(folder).record(device, run_id))}"


def _hole(folder: str, device: str, run_id: str, status: str, details: bool) -> Hole:
    command = rerun_command(folder, device, run_id)
    if status == "missing":
        reason = "not started: there is no record"
        log = _log_lines(folder, device, run_id) if details else ()
        return Hole(device, run_id, status, FailureClass.NOT_ATTEMPTED.value, reason, log, command)
    record = _read_dict(RunFolder(folder).record(device, run_id)) if details else {}
    if status == "broken":
        reason = "the file that should be its record is torn, empty or foreign, and is not believed"
        return Hole(device, run_id, status, FailureClass.NOT_ATTEMPTED.value, reason, (), command)
    failure = record.get("failure")
    failure = failure if isinstance(failure, Mapping) else {}
    default = FailureClass.NOT_ATTEMPTED if status == "hole" else FailureClass.MEASUREMENT
    reason = str(failure.get("message") or record.get("error") or "its record gives no reason")
    return Hole(
        device,
        run_id,
        status,
        str(failure.get("class", default.value)),
        reason,
        _record_lines(record) or (_log_lines(folder, device, run_id) if details else ()),
        command,
    )


def _record_lines(record: Mapping[str, Any]) -> tuple[str, ...]:
    streams = record.get("raw")
    if not isinstance(streams, Mapping):
        return ()
    for name in ("stderr", "stdout"):
        text = streams.get(name)
        if isinstance(text, str) and (lines := raw.last_lines(text)):
            return tuple(lines)
    return ()


def _log_lines(folder: str, device: str, run_id: str) -> tuple[str, ...]:
    """Of the job's own log: where a point died before there was a record. A missing log is no error (B41)."""
    try:
        with open(RunFolder(folder).log(device, run_id), "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL_BYTES))
            return tuple(raw.last_lines(file.read().decode("utf-8", "replace")))
    except OSError:
        return ()


def _read_dict(path: str) -> Mapping[str, Any]:
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
