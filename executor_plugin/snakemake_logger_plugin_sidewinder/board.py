"""A board: what is known of each device's share of the sweep, and the lines that tell a person what changed.

Pure: events in (see docs/notes/contracts.md, "events for displays"), lines out; ``now_s`` is passed in.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_LATER = "not ready in time, tried again later: "
_RECENT = 20  # finished points whose durations an estimate rests on


class Line(NamedTuple):
    """One line for a person. ``level``: "info", "good", "warning", "error"."""

    text: str
    level: str = "info"


@dataclass(slots=True)
class Row:
    """One device: how much it has to do and what became of it."""

    planned: int = 0
    done_before: int = 0
    ok: int = 0
    failed: int = 0
    holes: int = 0  # those that moved among them
    moves_over: int = 0
    cancelled: int = 0
    state: str = "up"
    unlinked: set[str] = field(default_factory=set)  # run ids that go on there while nobody can reach the device
    down_because: str = ""  # the last reason that was printed
    moved: dict[str, str] = field(default_factory=dict)  # run id -> the device that took it over
    copies: set[str] = field(default_factory=set)  # run ids of what it took over from others
    copies_ok: int = 0
    waits: str = ""  # why the device cannot be had yet; "": it can, or nobody asked for it
    waits_told: set[str] = field(default_factory=set)  # what was said of this wait, without its figures
    staging: dict[str, float] = field(default_factory=dict)  # file on its way there -> share that is there
    running: dict[str, tuple[str, float]] = field(default_factory=dict)  # run id -> (label, since_s)
    recent_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    busiest: int = 1  # most points seen at once: what an estimate may divide by

    @property
    def over(self) -> int:
        return self.done_before + self.ok + self.failed + self.holes + self.cancelled

    @property
    def ails(self) -> str:
        """What a person should know of the device beside its figures; "": nothing."""
        return "DOWN" if self.state == "down" else "LINK LOST" if self.unlinked else ""

    @property
    def waits_for(self) -> str:
        """Why the device cannot be had yet, its first sentence; "": nothing is waited for."""
        if not self.waits:
            return ""
        text = _one_line(self.waits.split(". ")[0], 120)
        return text if text.startswith(_LATER) else f"waits: {text}"

    @property
    def bringing(self) -> str:
        """The file that a point waits for until it is on the device; "": none."""
        return next((f"bringing {file} {100 * share:.0f} %" for file, share in self.staging.items()), "")

    @property
    def queued(self) -> int:
        return max(0, self.planned - self.over - len(self.running))

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until this device has nothing left, from the mean of its recent points; None before the first."""
        left = self.queued + len(self.running)
        if not left or not self.recent_s:
            return None
        mean_s = sum(self.recent_s) / len(self.recent_s)
        under_way_s = sum(min(mean_s, now_s - since_s) for _, since_s in self.running.values())
        return max(0.0, (left * mean_s - under_way_s) / self.busiest)


class Board:
    """All devices of all labs of one run."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.started_s: float | None = None

    # -- what an event changes --------------------------------------------------------------------------------------

    def handle(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        """Take in one event; the lines to print, oldest first. An unknown kind prints nothing and breaks nothing."""
        handler = getattr(self, f"_on_{event.get('kind')}", None)
        return handler(event, now_s) if handler else []

    def row(self, device: str) -> Row:
        return self.rows.setdefault(device, Row())

    @property
    def planned(self) -> int:
        return sum(row.planned for row in self.rows.values())

    @property
    def over(self) -> int:
        return sum(row.over for row in self.rows.values())

    def _on_plan(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        if self.started_s is None:
            self.started_s = now_s
        lines = []
        for device, counts in event.get("devices", {}).items():
            row = self.row(device)
            row.planned += int(counts.get("planned", 0))
            row.done_before += int(counts.get("done", 0))
            todo = int(counts.get("open", row.planned - row.done_before))
            planned = int(counts.get("planned", 0))
            lines.append(Line(f"{device}: {planned} point{'s' if planned != 1 else ''} planned, {todo} to measure"))
        return lines

    def _on_started(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        row = self.row(event["device"])
        row.waits = ""
        row.running[event["run_id"]] = (event.get("label", event["run_id"]), now_s)
        row.busiest = max(row.busiest, len(row.running))
        return []

    def _on_finished(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        row = self.row(event["device"])
        row.unlinked.discard(event["run_id"])
        label, since_s = row.running.pop(event["run_id"], (event.get("label", event["run_id"]), None))
        outcome = event.get("outcome")
        failure = event.get("failure") or {}
        if event.get("already"):
            return []  # counted as done in the plan
        if since_s is not None and outcome in ("ok", "failed"):
            row.recent_s.append(now_s - since_s)
        where = f"{event['device']} {label}"
        if outcome == "ok":
            row.ok += 1
            row.copies_ok += event["run_id"] in row.copies
            return [self._numbered(f"{where}: {event.get('headline') or 'done'}", "good")]
        if outcome == "failed":
            row.failed += 1
            return [
                self._numbered(f"{where}: FAILED ({failure.get('class', '?')}) {failure.get('message', '')}", "error")
            ]
        if outcome == "hole":
            row.staging.clear()
            row.holes += 1
            if event["run_id"] in row.moved:  # why, and its copy's figures, have had their lines
                row.moves_over += 1
                return [self._numbered(f"HOLE {where}: moved to {row.moved[event['run_id']]}, stays open", "error")]
            return [self._numbered(f"HOLE {where}: {failure.get('message', 'never measured')}", "error")]
        row.cancelled += 1
        return []

    def _numbered(self, text: str, level: str) -> Line:
        total = self.planned
        return Line(f"[{self.over:>{len(str(total))}}/{total}] {_one_line(text)}", level)

    def _on_staging(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        row, total = self.row(event["device"]), event.get("total_bytes") or 0
        if event.get("bytes", 0) < total:
            row.staging[event["file"]] = event["bytes"] / total
        else:
            row.staging.pop(event["file"], None)
        return []

    def _on_retry(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        row = self.row(event["device"])
        row.staging.clear()  # one that goes on says so again
        row.running.pop(event.get("run_id", ""), None)
        row.unlinked.discard(event.get("run_id", ""))
        wait = f", again in {event['delay_s']:.0f} s" if event.get("delay_s") is not None else ""
        what = event.get("label") or event.get("run_id", "")
        why = _one_line(str(event.get("error", "")))
        return [
            Line(f"RETRY {event['device']} {what}: attempt {event.get('attempt', '?')} lost ({why}){wait}", "warning")
        ]

    def _on_down(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        device = event["device"]
        self.row(device).state = "down"
        self.row(device).down_because = str(event.get("reason", ""))
        self.row(device).waits = ""
        why = _one_line(str(event.get("reason", ""))).removeprefix(f"{device} ")  # "was taken out of service: …"
        return [Line(f"DOWN {device}: {why}", "error")]

    def _on_up(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        self.row(event["device"]).state = "up"
        return [Line(f"UP {event['device']}: {_one_line(str(event.get('reason', '')))}", "good")]

    def _on_link_lost(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        self.row(event["device"]).unlinked.add(event.get("run_id", ""))
        wait = f", which goes on there and is asked for up to {event['lease_s']:g} s" if "lease_s" in event else ""
        where = f"{event['device']} {event.get('label', '')}".rstrip()
        return [Line(f"LINK LOST {where}{wait}: {_one_line(str(event.get('reason', '')))}", "warning")]

    def _on_link_back(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        self.row(event["device"]).unlinked.discard(event.get("run_id", ""))
        where = f"{event['device']} {event.get('label', '')}".rstrip()
        return [Line(f"LINK BACK {where}: after {event.get('away_s')} s, the run is {event.get('state')}", "good")]

    def _on_busy(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        return [Line(f"BUSY {event['device']}: held by {event.get('holder', 'somebody else')}", "warning")]

    def _on_waiting(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        """A line for each reason, and none where only its figures changed: other pods come and go."""
        row, reason = self.row(event["device"]), str(event.get("reason", ""))
        row.waits = reason
        told = re.sub(r"\d+", "#", reason)
        if told in row.waits_told:
            return []
        row.waits_told.add(told)
        return [Line(f"WAITS {event['device']}: {_one_line(reason)}", "warning")]

    def _on_waited(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        """Where it was not had in time the reason stands until it is tried again, or is down."""
        row, after = self.row(event["device"]), duration(event.get("waited_s", 0.0))
        if not event.get("ready"):
            row.waits = _LATER + row.waits.removeprefix(_LATER)
            return [Line(f"NOT READY {event['device']}: after {after}", "warning")]
        row.waits = ""
        row.waits_told.clear()
        return [Line(f"READY {event['device']}: after {after}", "good")]

    def _on_moved(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        """The point becomes a hole of its own device; its copy is one point more for the other."""
        row, to = self.row(event["device"]), event.get("to")
        if to and not event.get("measured_before"):
            self.row(to).planned += 1
            self.row(to).copies.add(event.get("moved_to", ""))
        if to:
            row.moved[event.get("run_id", "")] = to
        reason = str(event.get("reason", ""))
        where = f"{event['device']} {event.get('label', '')}"
        if to and row.down_because and row.down_because in reason:  # it was printed a moment ago: not once more a point
            return [Line(f"MOVED {where}: to {to} as {event.get('moved_to', '?')}", "warning")]
        return [Line(f"MOVED {where}: {_one_line(reason)}", "warning")]

    def _on_warning(self, event: Mapping[str, Any], now_s: float) -> list[Line]:
        text, device = _one_line(str(event.get("message", "")), 600), event.get("device")  # advice stands at its end
        # what comes by Snakemake's logger was made a sentence on its way, and has the device in it
        where = f"{device}: " if device and not text.startswith(str(device)) else ""
        return [Line(f"warning: {where}{text}", "warning")]

    # -- what can be asked ------------------------------------------------------------------------------------------

    def eta_s(self, now_s: float) -> float | None:
        """Seconds until the slowest device is done; None while one that has work cannot be estimated."""
        estimates = [row.eta_s(now_s) for row in self.rows.values() if row.queued or row.running]
        known = [one for one in estimates if one is not None]
        return max(known) if known and len(known) == len(estimates) else None

    def device_lines(self, now_s: float) -> list[str]:
        """One line a device: running, queued, done, failed, ETA."""
        lines = []
        for device, row in self.rows.items():
            eta_s = row.eta_s(now_s)
            parts = [f"{len(row.running)} running", f"{row.queued} queued", f"{row.done_before + row.ok} done"]
            parts += [f"{row.failed} failed"] if row.failed else []
            parts += [f"{row.holes} never measured"] if row.holes else []
            parts += [f"about {duration(eta_s)} left"] if eta_s is not None else []
            parts += [row.bringing] if row.bringing else []
            parts += [row.waits_for] if row.waits_for else []
            parts += [row.ails] if row.ails else []
            lines.append(f"{device}: " + ", ".join(parts))
        return lines

    def closing(self, now_s: float) -> list[Line]:
        """What to say at the end: how many, how long, how many failed."""
        if not self.rows:
            return []
        rows = self.rows.values()
        ok, failed, holes = (sum(getattr(row, name) for row in rows) for name in ("ok", "failed", "holes"))
        before, cancelled = sum(row.done_before for row in rows), sum(row.cancelled for row in rows)
        if not ok + failed + holes + cancelled:
            return []
        moved, copies = sum(row.moves_over for row in rows), sum(len(row.copies) for row in rows)
        copies_ok = sum(row.copies_ok for row in rows)
        took = f" in {duration(now_s - self.started_s)}" if self.started_s is not None else ""
        parts = [f"{ok - copies_ok} measured{took}"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{moved} moved to another device ({copies_ok} measured there)"] if moved else []
        parts += [f"{holes - moved} never measured"] if holes > moved else []
        parts += [f"{cancelled} not started"] if cancelled else []
        parts += [f"{before} were done before"] if before else []
        # a copy is another measurement: what was planned stays open
        done, planned = before + ok - copies_ok, self.planned - copies
        level = "good" if done >= planned else "error"
        return [Line(f"{done} of {planned} points are measured: " + ", ".join(parts), level)]


def duration(seconds: float) -> str:
    """Seconds for a person: "45 s", "3 min 20 s", "2 h 05 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def _one_line(text: str, limit: int = 300) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
