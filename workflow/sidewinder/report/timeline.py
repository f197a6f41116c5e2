"""A timeline: one lane a device, one bar an attempt, in the order in which things really ran."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from .columns import instant
from .tables import Row
from .words import seconds

UNITS: Final = 1000  # the width of a lane
MAX_BARS: Final = 400  # a lane; more are merged where no eye could tell them apart
_BADNESS: Final = ("ok", "lost", "failed")
_STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


@dataclass(slots=True)
class Bar:
    start: float  # in units of the lane
    width: float
    outcome: str  # ok, failed, lost (an attempt without a result)
    count: int
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    device: str
    bars: Sequence[Bar]
    attempts: int


@dataclass(frozen=True, slots=True)
class Timeline:
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]  # position, label
    start: str
    length: str
    is_merged: bool


@dataclass(frozen=True, slots=True)
class Span:
    start: datetime
    end: datetime
    outcome: str
    run_id: str
    n: int


def spans(row: Row) -> list[Span]:
    """The attempts of one point; where the record lists none, the run itself as far as its times are known."""
    found = []
    text = row.get("attempts_json")
    listed = json.loads(text) if isinstance(text, str) else []
    for a in listed:
        start, end = instant(a.get("start_utc")), instant(a.get("end_utc"))
        n = a.get("n")
        if start and end and end >= start:
            found.append(Span(start, end, _outcome(a, row), row["run_id"], n if isinstance(n, int) else 0))
    end, duration = instant_of(row.get("timestamp_utc")), row.get("duration_s")
    if not listed and end and duration is not None and 0 <= duration < 1e8:
        found.append(Span(end - timedelta(seconds=duration), end, _outcome({}, row), row["run_id"], 1))
    return found


def instant_of(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else instant(value)


def _outcome(attempt: Mapping[str, object], row: Row) -> str:
    if attempt.get("class") in ("transport", "preempted", "cancelled") or attempt.get("outcome") in ("lost", "hole"):
        return "lost"
    if attempt.get("class") or row.get("status") != "ok":
        return "failed"
    return "ok"


def timeline(rows: Iterable[Row], devices: Sequence[str]) -> Timeline | None:
    """None where no record knows its times."""
    by_device: dict[str, list[Span]] = {}
    for row in rows:
        if found := spans(row):
            by_device.setdefault(row.get("device") or "?", []).extend(found)
    every = [s for lane in by_device.values() for s in lane]
    if not every:
        return None
    start, end = min(s.start for s in every), max(s.end for s in every)
    length_s = max((end - start).total_seconds(), 1e-3)
    order = [d for d in dict.fromkeys((*devices, *by_device)) if d in by_device]
    lanes, merged = [], False
    for device in order:
        found = sorted(by_device[device], key=lambda s: (s.start, s.run_id))
        bars = [_bar(s, start, length_s) for s in found]
        if len(bars) > MAX_BARS:
            bars, merged = _merge(bars), True
        lanes.append(Lane(device, bars, len(found)))
    return Timeline(lanes, _ticks(length_s), start.strftime("%Y-%m-%d %H:%M:%S UTC"), seconds(length_s), merged)


def _bar(span: Span, start: datetime, length_s: float) -> Bar:
    begin_s = (span.start - start).total_seconds()
    took_s = (span.end - span.start).total_seconds()
    title = f"{span.run_id}, attempt {span.n}: {span.outcome}, {seconds(took_s)}, from {span.start:%H:%M:%S} UTC"
    return Bar(begin_s / length_s * UNITS, took_s / length_s * UNITS, span.outcome, 1, title)


def _merge(bars: Sequence[Bar]) -> list[Bar]:
    """Neighbours of one outcome that touch on any screen become one bar; what is not ok always stays visible."""
    merged: list[Bar] = []
    for bar in bars:
        last = merged[-1] if merged else None
        if last and last.outcome == bar.outcome and bar.start - (last.start + last.width) < UNITS / MAX_BARS:
            last.width = max(last.width, bar.start + bar.width - last.start)
            last.count += 1
            last.title = f"{last.count:,} attempts: {last.outcome}"
        else:
            merged.append(Bar(bar.start, bar.width, bar.outcome, 1, bar.title))
    if len(merged) <= 4 * MAX_BARS:
        return merged
    # Outcomes that alternate thousands of times: a bar for each screen column, as bad as the worst of its attempts.
    columns: dict[int, Bar] = {}
    for bar in merged:
        slot = int(bar.start * MAX_BARS / UNITS)
        seen = columns.setdefault(slot, Bar(slot * UNITS / MAX_BARS, UNITS / MAX_BARS, bar.outcome, 0, ""))
        seen.outcome = max(seen.outcome, bar.outcome, key=_BADNESS.index)
        seen.count += bar.count
        seen.title = f"{seen.count:,} attempts, the worst: {seen.outcome}"
    return list(columns.values())


def _ticks(length_s: float) -> list[tuple[float, str]]:
    step = next((s for s in _STEPS_S if length_s / s <= 6), None) or -(-length_s // (5 * 86400)) * 86400
    return [(i * step / length_s * UNITS, _tick(i * step)) for i in range(int(length_s / step) + 1)]


def _tick(at_s: float) -> str:
    if at_s == 0:
        return "0"
    if at_s % 86400 == 0:
        return f"{at_s / 86400:.0f} d"
    if at_s % 3600 == 0:
        return f"{at_s / 3600:.0f} h"
    return f"{at_s / 60:.0f} min" if at_s % 60 == 0 else f"{at_s:.0f} s" if at_s < 60 else f"{at_s / 60:.1f} min"
