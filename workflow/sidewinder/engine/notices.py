"""Notices: what displays are told, one mapping an event (docs/notes/contracts.md has the table of kinds and keys).

They are for people only. A display that breaks costs its line, never a measurement, so nothing here decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sidewinder.core.instructions import Note
from sidewinder.errors import ConfigError
from sidewinder.model import Failure

from .callbacks import Callbacks, Key
from .clock import utc_now
from .jobs import Job
from .session import Session
from .waiting import Waiting

_LOG = logging.getLogger(__name__)


class Notices:
    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._display_broke = False  # said once

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

    def warning(self, message: str, job: Job | None = None, *, device: str | None = None) -> None:
        self._tell("warning", job=job, message=message, **({"device": device} if job is None else {}))

    def waiting(self, device: str, waiting: Waiting) -> None:
        if waiting.reason is not None:
            self._tell("waiting", device=device, reason=waiting.reason, since_utc=waiting.since_utc)
        else:
            self._tell("waited", device=device, waited_s=waiting.waited_s, ready=waiting.ready)

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
                    label=_label(job),
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
                self._tell(
                    "moved",
                    job=job,
                    label=_label(job),
                    to=fields.get("to_device"),
                    moved_to=fields.get("moved_to"),
                    measured_before=fields.get("measured_before"),
                    reason=f"to {fields.get('to_device')} as {fields.get('moved_to')}: {reason}",
                )
            case "link_lost":
                group = job.link.device.resource_group if job is not None else None
                if group is not None:
                    reason += f"; its turn in group {group} is kept meanwhile"
                self._tell("link_lost", job=job, lease_s=fields.get("lease_s"), reason=reason, label=_label(job))
            case "reconnected":
                self._tell(
                    "link_back", job=job, away_s=fields.get("away_s"), state=fields.get("state"), label=_label(job)
                )
            case "staging":
                self._tell("staging", job=job, **fields)
            case "straggler":
                at_most_s = fields.get("at_most_s", 0.0)
                self.warning(
                    f"attempt {fields.get('attempt')} on {device} may still run: its turn in the group is kept until "
                    f"the device says otherwise, {at_most_s:.0f} s at most",
                    job,
                )
            case "stopped":
                self.warning(f"no new work is taken: {reason}", job)
            case "kill_unproven":
                self.warning(f"attempt {fields.get('attempt')} on {device} may still run: {reason}", job)

    def _tell(self, kind: str, *, job: Job | None = None, **fields: Any) -> None:
        event: dict[str, Any] = {"v": 1, "kind": kind, "at_utc": utc_now()}
        if job is not None:
            event.update(device=job.link.device.id, run_id=job.run_id, key=job.key)
        event.update((name, value) for name, value in fields.items() if value is not None)
        try:
            self._callbacks.on_event(event)
        except Exception as error:  # noqa: BLE001 -- whatever a display does to itself, the measurements go on
            if not self._display_broke:
                self._display_broke = True
                _LOG.warning("a display broke (%s: %s); the measurements go on", type(error).__name__, error)


def _label(job: Job | None) -> str | None:
    return job.describe().get("label") if job is not None else None


def warning_of(note: Note) -> str | None:
    """The sentence that a record carries because of this note; None: it changes nothing about the measurement."""
    fields = note.fields
    match note.kind:
        case "reattached" | "adopted":
            whose = " of an earlier invocation" if note.kind == "adopted" else ""
            return (
                f"attempt {fields.get('attempt')}{whose} was found {fields.get('state')} on the device and taken over"
            )
        case "reconnected":
            away_s = fields.get("away_s")
            return f"the link was lost for {away_s} s during attempt {fields.get('attempt')}, which went on"
        case "retry":
            what = fields.get("failure_class", "transport")
            then = "and was repeated" if fields.get("over") else "and the device was asked what became of it"
            return f"attempt {fields.get('attempt')} failed on the way ({what}: {fields.get('error')}) {then}"
        case "device_up":
            tests = (
                f", {fields['failed_tests']} probes or trials failed meanwhile" if fields.get("failed_tests") else ""
            )
            return f"this was the first run after its device had been down for {fields.get('down_s', 0.0):.0f} s{tests}"
        case "device_down":
            return f"a failure on the way of this point took its device down ({fields.get('reason')})"
        case "evicted":
            return f"an abandoned run ({fields.get('holder')}) was stopped on the device just before"
    return None


def warnings_before(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The sentences for what an earlier invocation wrote in the ledger and was killed before it wrote the record."""
    for line in lines:
        kind = "retry" if line["event"] in ("repeat", "preempted") else line["event"]
        if kind in ("retry", "reattached", "adopted", "reconnected"):
            sentence = warning_of(Note(kind, line["device"], line["run_id"], dict(line)))
            if sentence:
                yield sentence


def write_ledger(session: Session, note: Note, job: Job | None) -> None:
    """The line that a person finds in ``retries.jsonl``. Raises ``PublishError``."""
    fields, device = note.fields, note.device.partition(":")[2]
    run_id = job.run_id if job is not None else None
    match note.kind:
        case "stale_event" | "staging":
            return
        case "transport_failure" if job is not None:
            known = {key: value for key, value in fields.items() if key != "failures"}
            session.ledger.transport_failure(
                run_id=job.run_id, device=device, utc=utc_now(), **_subject_of(session, job), **known
            )
        case "moved" if job is not None:
            session.ledger.failover(
                run_id=job.run_id,
                moved_run_id=fields["moved_to"],
                from_device=device,
                to_device=fields["to_device"],
                model=_subject_of(session, job)["model"],
                reason=fields["reason"],
                note="measured there by an earlier run" if fields["measured_before"] else "another measurement",
                utc=utc_now(),
            )
        case "retry":
            if not fields.get("over"):
                return  # nothing is repeated yet: its `transport_failure` is written
            preempted = fields.get("failure_class") == "preempted"
            known = {**fields, "device": device, "run_id": run_id, "utc": utc_now()}
            session.ledger.note("preempted" if preempted else "repeat", **known)
        case kind:
            session.ledger.note(kind, **{**fields, "device": device, "run_id": run_id, "utc": utc_now()})


def _subject_of(session: Session, job: Job) -> dict[str, Any]:
    """What M-119 says of the point beside its name. A user's rule has neither."""
    try:
        point = session.point(job.run_id)
    except ConfigError:
        return {"model": None, "mode": ""}
    return {"model": point.model, "mode": point.mode}
