"""Claims: the attempts that are about to be started, on their way to the journal.

Those of one slice of the loop share one write and one fsync per run folder: with many devices the disk, not the
devices, would set the pace otherwise.
"""

from __future__ import annotations

from typing import Any

from sidewinder.core.events import Event, Journaled
from sidewinder.core.instructions import Journal
from sidewinder.errors import PublishError

from .border import event_for
from .jobs import Job
from .session import Session


class Claims:
    def __init__(self) -> None:
        self._waiting: dict[Session, list[tuple[Journal, dict[str, Any]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, instruction: Journal, job: Job) -> Event | None:
        """The event at once where nothing needs to be claimed; else it comes with ``write``."""
        line = job.claim(instruction.attempt.n)
        if line is None:
            return Journaled(instruction.attempt)
        self._waiting.setdefault(job.session, []).append((instruction, line))
        return None

    def write(self) -> list[Event]:
        """On the disk, synced, before anybody is told to start."""
        events: list[Event] = []
        waiting, self._waiting = self._waiting, {}
        for session, claims in waiting.items():
            try:
                _still_ours(session)
                session.journal.append_many([line for _, line in claims], sync=True)
            except PublishError as error:
                failed = (event_for(instruction, error) for instruction, _ in claims)
                events += [event for event in failed if event is not None]
            else:
                events += [Journaled(instruction.attempt) for instruction, _ in claims]
        return events


def _still_ours(session: Session) -> None:
    """A machine that slept, or lost its network folder, has had no heartbeat: another controller may have taken over.
    Each of these claims would be a second run of what that one measures."""
    if not session.lock.is_mine():
        raise PublishError(
            f"run folder {session.root} was taken over by another controller while this one slept or was cut off from "
            "it; what is left is that one's"
        )
