"""The ends: how what happened to each piece of work is told — to displays, to the schedule, to whoever handed it over.

A key is answered for only after its record is on disk. Points that end in the engine share one sync a slice.
"""

from __future__ import annotations

from typing import Any

from sidewinder.core.instructions import Note
from sidewinder.errors import PublishError
from sidewinder.files.journal import adopted, died
from sidewinder.files.records import Published
from sidewinder.model import AttemptId, Failure, FailureClass

from .callbacks import Callbacks, Key
from .clock import utc_now
from .jobs import Job
from .notices import Notices, warning_of, write_ledger
from .outline import Outline
from .session import Session
from .shard import Shard
from .waiting import Waiting


def _death(note: Note, job: Job) -> dict[str, Any] | None:
    """The journal's line for an attempt that died with what it ran in; a later controller need not ask for it."""
    known = note.fields.get("evidence")
    if not known or not job.is_measured:  # a user's rule has no journal
        return None
    attempt = AttemptId(job.run_id, note.fields["attempt"])
    told = {"class": note.fields["failure_class"], "cause": known.get("cause"), "proof": known.get("proof")}
    return died(attempt, job.link.device.id, utc_now(), **told)


class Ends:
    def __init__(self, callbacks: Callbacks) -> None:
        self.notices = Notices(callbacks)
        self._callbacks = callbacks
        self._outlines: dict[Session, Outline] = {}
        self._untold: set[Session] = set()  # labs whose totals displays do not know yet
        self._unpublished: list[tuple[Job, str, Failure | None]] = []

    def add(self, session: Session) -> None:
        self._untold.add(session)
        self._outlines[session] = Outline(session)

    def totals(self, session: Session) -> None:
        """Once per lab, before its first start."""
        if session in self._untold:
            self._untold.discard(session)
            self.notices.plan(session, session.totals())

    def already_done(self, session: Session, run_id: str, key: Key) -> None:
        self.notices.already_done(session, run_id, key)
        if session in self._outlines:
            self._outlines[session].already_done()

    def started(self, job: Job, n: int) -> None:
        self.notices.started(job, n)
        if job.moved_from is None and (job.shard is None or not job.shard.has_started):
            self._callbacks.on_started(job.key, AttemptId(job.run_id, n))
        if job.shard is not None:
            job.shard.has_started = True

    def over(self, job: Job, outcome: str, failure: Failure | None) -> None:
        """The core is done with this job."""
        line = job.ended(outcome)
        if line is not None:
            try:
                # not synced: losing it costs one question to the device after a power cut
                job.session.journal.append(line, sync=False)
            except PublishError as error:
                self.notices.warning(str(error), job)
        if job.inline:
            self._unpublished.append((job, outcome, failure))
        else:
            self._tell(job, outcome, failure)

    def publish_pending(self) -> str | None:
        """Bring the records of this slice's inline points to the disk, then tell. A sentence: the disk refused."""
        if not self._unpublished:
            return None
        over, self._unpublished = self._unpublished, []
        told: dict[tuple[Session, str], Published] = {}
        refused: dict[Session, Failure] = {}
        by_session: dict[Session, list[str]] = {}
        for job, _, _ in over:
            by_session.setdefault(job.session, []).append(job.run_id)
        for session, run_ids in by_session.items():
            try:
                told.update({(session, run_id): entry for run_id, entry in session.publish_pending(run_ids).items()})
            except PublishError as error:
                refused[session] = Failure(FailureClass.CANCELLED, f"not recorded: {error}")
        for job, outcome, failure in over:
            if job.session in refused:
                self._tell(job, "cancelled", refused[job.session])
            else:
                self._tell(job, outcome, failure, told.get((job.session, job.run_id)))
        return next((failure.message for failure in refused.values()), None)

    def shard_over(self, shard: Shard) -> None:
        outcome, failure = shard.publish()
        self._callbacks.on_done(shard.key, outcome, failure)

    def note(self, note: Note, session: Session | None, job: Job | None) -> None:
        """Something the core wants kept: in the record, in the schedule, in the ledger, on the display."""
        if job is not None and (sentence := warning_of(note)):
            job.warn(sentence)
        if session is not None:
            outline = self._outlines.get(session)
            if outline is not None and (outline.noted(note) or outline.is_due):
                self._write(outline)
            try:
                line = session.health.line(note.device.partition(":")[2], note)
                if line is not None:
                    session.journal.append(line)
                if note.kind == "adopted" and job is not None:
                    attempt = AttemptId(job.run_id, note.fields["attempt"])
                    session.journal.append(adopted(attempt, job.link.device.id, utc_now()), sync=False)
                if note.kind == "retry" and job is not None and (line := _death(note, job)) is not None:
                    session.journal.append(line, sync=False)
                write_ledger(session, note, job)
            except PublishError as error:
                self.notices.warning(str(error), job)
        self.notices.note(note, job)

    def remark(self, session: Session, device: str, text: str) -> None:
        """Something that a person should know of a device: on the display, and in the schedule at once."""
        self.notices.warning(text, device=device)
        outline = self._outlines.get(session)
        if outline is not None:
            outline.changed()
            self._write(outline)

    def waiting(self, session: Session, device: str, waiting: Waiting) -> None:
        """A device cannot be had yet, or it can now: on the display, and in the schedule at once."""
        self.notices.waiting(device, waiting)
        outline = self._outlines.get(session)
        if outline is not None:
            outline.changed()
            self._write(outline)

    def close(self) -> None:
        for outline in self._outlines.values():
            self._write(outline, last=True)

    def _tell(self, job: Job, outcome: str, failure: Failure | None, told: Published | None = None) -> None:
        self.notices.finished(job, outcome, failure)
        outline = self._outlines.get(job.session)
        if outline is not None:
            outline.ended(job.link.device.id, outcome)
            if outline.is_due:
                self._write(outline)
        if job.moved_from is not None:
            return  # whoever waits, waits for the original
        if job.shard is None:
            self._callbacks.on_done(job.key, outcome, failure)
        elif job.shard.ended(job.run_id, outcome, failure, told):
            self.shard_over(job.shard)

    def _write(self, outline: Outline, *, last: bool = False) -> None:
        try:
            outline.write(last=last)
        except PublishError as error:
            self.notices.warning(str(error))
