"""Notices: what displays are told, one mapping an event (docs/notes/contracts.md has the table of kinds and keys).

They are for people only. A display that breaks costs its line, never a measurement, so nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidewinder.core.instructions import Note
from sidewinder.model import Failure

from .callbacks import Callbacks, Key
from .clock import utc_now
from .jobs import Job
from .session import Session


class Notices:
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def plan(self, session: Session, devices: Mapping[str, Mapping[str, int]]) -> None:
        self._tell("plan", devices=devices, root=session.root)

    def started(self, job: Job, attempt: int) -> None:
        told = job.describe()
        self._tell("started", job=job, attempt=attempt, label=told.get("label"), position=told.get("position"))

    def finished(self, job: Job, outcome: str, failure: Failure | None) -> None:
        told = job.describe()
        told.pop("position", None)
        if failure is not None:
            told["failure"] = {"class": failure.failure_class.value, "message": failure.message}
        self._tell("finished", job=job, outcome=outcome, **told)

    def already_done(self, session: Session, run_id: str, key: Key) -> None:
        point = session.point(run_id)
        self._tell(
            "finished",
            device=point.device,
            run_id=run_id,
            key=key,
            label=session.label(point),
            outcome="ok",
            already=True,
        )

    def warning(self, message: str, job: Job | None = None) -> None:
        self._tell("warning", job=job, message=message)

    def note(self, note: Note, job: Job | None) -> None:
        """What the core wants a person to see, in the words of displays. What only the ledger keeps is left out."""
        fields, device = note.fields, note.device.partition(":")[2] or note.device
        reason = str(fields.get("reason") or fields.get("error") or "")
        match note.kind:
            case "retry":
                self._tell(
                    "retry",
                    job=job,
                    device=device,
                    label=job.describe().get("label") if job else None,
                    attempt=fields.get("attempt"),
                    error=reason,
                    delay_s=fields.get("delay_s"),
                    **{"class": fields.get("failure_class", "transport")},
                )
            case "device_down" | "quarantined" | "given_up":
                self._tell("down", device=device, reason=reason)
            case "device_up":
                self._tell("up", device=device, reason=f"a run came back after {fields.get('down_s', 0.0):.0f} s")
            case "released":
                self._tell("up", device=device, reason=f"a passed probe lifted its quarantine ({reason})")
            case "busy":
                self._tell("busy", job=job, device=device, holder=fields.get("holder"))
            case "moved":
                self._tell("moved", job=job, device=device, reason=reason)
            case "link_lost":
                lease_s = fields.get("lease_s", 0)
                self.warning(f"the run goes on, its device is called again for {lease_s:g} s: {reason}", job)
            case "reconnected":
                self.warning(f"the link is back after {fields.get('away_s')} s, the run is {fields.get('state')}", job)
            case "stopped":
                self.warning(f"no new work is taken: {reason}", job)
            case "kill_unproven":
                self.warning(f"attempt {fields.get('attempt')} on {device} may still run: {reason}", job)

    def _tell(self, kind: str, *, job: Job | None = None, **fields: Any) -> None:
        event: dict[str, Any] = {"v": 1, "kind": kind, "at_utc": utc_now()}
        if job is not None:
            event.update(device=job.link.device.id, run_id=job.run_id, key=job.key)
        event.update((name, value) for name, value in fields.items() if value is not None)
        self._callbacks.on_event(event)


def warning_of(note: Note) -> str | None:
    """The sentence that a record carries because of this note; None: it changes nothing about the measurement."""
    fields = note.fields
    match note.kind:
        case "reattached":
            return f"attempt {fields.get('attempt')} was found {fields.get('state')} on the device and taken over"
        case "reconnected":
            away_s = fields.get("away_s")
            return f"the link was lost for {away_s} s during attempt {fields.get('attempt')}, which went on"
        case "retry":
            what = fields.get("failure_class", "transport")
            return f"attempt {fields.get('attempt')} failed on the way ({what}: {fields.get('error')}) and was repeated"
        case "device_up":
            return f"this was the first run after its device had been down for {fields.get('down_s', 0.0):.0f} s"
        case "device_down":
            return f"a failure on the way of this point took its device down ({fields.get('reason')})"
        case "evicted":
            return f"an abandoned run ({fields.get('holder')}) was stopped on the device just before"
    return None


_LEDGER_SKIPS = frozenset({"stale_event"})


def write_ledger(session: Session, note: Note, job: Job | None) -> None:
    """The line that a person finds in ``retries.jsonl``. Raises ``PublishError``."""
    fields, device = note.fields, note.device.partition(":")[2]
    if note.kind in _LEDGER_SKIPS:
        return
    point = session.plan.points.get(job.run_id) if job is not None else None
    if note.kind == "retry" and job is not None and fields.get("failure_class", "transport") == "transport":
        session.ledger.transport_failure(
            run_id=job.run_id,
            device=device,
            model=point.model if point else None,
            mode=point.mode if point else "",
            attempt=fields.get("attempt", 0),
            max_attempts=fields.get("max_attempts", 0),
            error=str(fields.get("error", "")),
            breaker_opened=bool(fields.get("breaker_opened")),
            utc=utc_now(),
            delay_s=fields.get("delay_s"),
        )
        return
    known = {"device": device, "run_id": job.run_id if job is not None else None, "utc": utc_now()}
    session.ledger.note(note.kind, **{**fields, **known})
