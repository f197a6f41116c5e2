"""A health: whether one lab's devices take points, as the journal keeps it over a restart.

Every change of a breaker, every failed probe and every quarantine is a line at the moment it happens. The next
invocation tells the core what was left down, and ``sidewinder devices`` shows the same lines.
"""

from __future__ import annotations

from typing import Any

from sidewinder.core.events import Earlier
from sidewinder.core.instructions import Note
from sidewinder.files import journal

from .clock import seconds_since, utc_in, utc_now

STATE_AFTER = {
    "device_down": "open",
    "probe_failed": "open",
    "given_up": "open",
    "released": "open",  # a completed run closes it
    "quarantined": "quarantined",
    "device_up": "closed",
}


class Health:
    def __init__(self, replay: journal.Replay) -> None:
        self.devices: dict[str, dict[str, Any]] = {
            name: entry for name, entry in replay.breakers.items() if entry.get("state") in ("open", "quarantined")
        }

    def earlier(self, device: str) -> Earlier | None:
        """What an earlier invocation left; None: the device was well."""
        entry = self.devices.get(device)
        if entry is None:
            return None
        reason = str(entry.get("reason") or "it was down when the last run ended")
        return Earlier(reason, entry["state"] == "quarantined", seconds_since(entry.get("down_since_utc")))

    def line(self, device: str, note: Note) -> dict[str, Any] | None:
        """The journal's line for this note; None: it changes nothing about the device."""
        state = STATE_AFTER.get(note.kind)
        if state is None:
            return None
        known, fields = self.devices.get(device, {}), note.fields
        if state == "closed":
            self.devices.pop(device, None)
            return journal.breaker(device, state, utc_now(), change=note.kind, down_s=fields.get("down_s"))
        at_utc = utc_now()
        if note.kind == "probe_failed" and known.get("state") == "quarantined":
            state = "quarantined"  # until a probe passes
        in_s = None if note.kind in ("given_up", "quarantined") else fields.get("probe_in_s")
        entry = journal.breaker(
            device,
            state,
            at_utc,
            change=note.kind,
            reason=fields.get("reason") or known.get("reason"),
            down_since_utc=known.get("down_since_utc") or _ago(fields.get("down_s", 0.0), at_utc),
            evidence=fields.get("error") or known.get("evidence"),
            failures=fields.get("failures"),
            next_probe_utc=None if in_s is None else utc_in(in_s),
        )
        self.devices[device] = entry
        return entry


def _ago(seconds: float, at_utc: str) -> str:
    return utc_in(-seconds) if seconds > 0 else at_utc
