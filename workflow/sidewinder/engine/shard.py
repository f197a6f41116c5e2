"""A shard: points of one device that one Snakemake job measures, reported together when the manifest is on disk.

Each point goes through the core like any other. A record that rests on a run is published at once, so that a crash
costs nothing that was measured; records of points that end in the engine (no run to lose) wait for the manifest and
share one sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sidewinder.errors import PublishError
from sidewinder.files import shards
from sidewinder.model import Failure, FailureClass

from .callbacks import Key
from .session import Session

_WORST_FIRST = ("cancelled", "hole", "failed", "ok")


class Shard:
    def __init__(self, session: Session, name: str, run_ids: Sequence[str], key: Key) -> None:
        self.session, self.name, self.key = session, name, key
        self.run_ids = tuple(run_ids)
        self.device = session.point(self.run_ids[0]).device
        self.records: dict[str, dict[str, Any]] = {}  # built, not yet on disk
        self.open: set[str] = set()
        self._outcomes: dict[str, str] = {}
        self._failure: Failure | None = None

    def ended(self, run_id: str, outcome: str, failure: Failure | None) -> bool:
        """One point is over. True: it was the last one."""
        self.open.discard(run_id)
        self._outcomes[run_id] = outcome
        if failure is not None:
            worst = min(self._outcomes.values(), key=_WORST_FIRST.index)
            if outcome == worst or self._failure is None:
                self._failure = failure._replace(message=f"{run_id}: {failure.message}")
        return not self.open

    def publish(self) -> tuple[str, Failure | None]:
        """Put the rest on disk, then the manifest; how the shard as a whole ended."""
        outcome = min(self._outcomes.values(), key=_WORST_FIRST.index, default="ok")
        try:
            shards.publish_records(self.session.root, self.device, self.name, self.run_ids, self.records)
        except PublishError as error:
            return "cancelled", Failure(FailureClass.CANCELLED, f"not recorded: {error}")
        return outcome, self._failure if outcome != "ok" else None
