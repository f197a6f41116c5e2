"""A shard: points of one device that one Snakemake job measures, reported together when the manifest is on disk.

Each point goes through the core like any other and has its own record as soon as it is over, so that a crash costs
nothing that was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidewinder.errors import PublishError
from sidewinder.files import shards
from sidewinder.files.records import Published
from sidewinder.model import Failure, FailureClass

from .callbacks import Key
from .session import Session

_WORST_FIRST = ("cancelled", "hole", "failed", "ok")


class Shard:
    def __init__(self, session: Session, name: str, run_ids: Sequence[str], key: Key) -> None:
        self.session, self.name, self.key = session, name, key
        self.run_ids = tuple(run_ids)
        self.device = session.point(self.run_ids[0]).device
        self.has_started = False
        self._told: list[Published] = []  # what is known of records without reading them again
        self.open: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._failure: Failure | None = None

    def ended(self, run_id: str, outcome: str, failure: Failure | None, told: Published | None = None) -> bool:
        """One point is over, and its record on disk. True: it was the last one."""
        self.open.discard(run_id)
        if told is not None:
            self._told.append(told)
        self._outcomes[run_id] = outcome
        if failure is not None:
            worst = min(self._outcomes.values(), key=_WORST_FIRST.index)
            if outcome == worst or self._failure is None:
                self._failure = failure._replace(message=f"{run_id}: {failure.message}")
        return not self.open

    def publish(self) -> tuple[str, Failure | None]:
        """Put the manifest on disk; how the shard as a whole ended."""
        outcome = min(self._outcomes.values(), key=_WORST_FIRST.index, default="ok")
        try:
            shards.publish(self.session.root, self.device, self.name, self.run_ids, self._told)
        except PublishError as error:
            return "cancelled", Failure(FailureClass.CANCELLED, f"not recorded: {error}")
        return outcome, self._failure if outcome != "ok" else None
