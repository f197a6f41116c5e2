"""Done: the decision whether a planned point still has to be measured. Everyone asks here, nobody decides elsewhere.

A point is done when a valid record with ``status: ok`` lies under its final name, or when the config accepts its
failure with a reason and a record of that failure (failed, or a hole) is on disk.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping

from sidewinder.model import EMPTY, Plan

from . import shards
from .layout import RunFolder
from .records import Status, status_in, status_of


def is_settled(status: Status, accepted: str | None) -> bool:
    """The decision itself. Nothing accepts what is not there or cannot be read."""
    return status == "ok" or (bool(accepted) and status in ("failed", "hole"))


def is_done(folder: str, device: str, run_id: str, accept: Mapping[str, str] = EMPTY) -> bool:
    """The same for one point, read from the disk now."""
    return is_settled(status_of(RunFolder(folder).record(device, run_id), run_id), accept.get(run_id))


class Done:
    """What is done of a whole plan, as it lies on disk when first asked; make a new one to look again.

    Shard manifests are read once. A record with the size and mtime that its manifest wrote down is taken at the
    manifest's word; with another mtime (touched, copied) its digest is compared; with another content it is read.
    """

    def __init__(self, folder: str, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self._layout = RunFolder(folder)
        self._statuses: dict[str, Status] = {}
        self._witnesses: dict[str, shards.Entry] | None = None

    def status(self, run_id: str) -> Status:
        known = self._statuses.get(run_id)
        if known is None:
            known = self._statuses[run_id] = self._look(run_id)
        return known

    def is_done(self, run_id: str) -> bool:
        return is_settled(self.status(run_id), self.plan.lab.accept.get(run_id))

    def open_points(self) -> Iterator[str]:
        """The selected points that are not done, in the plan's order."""
        for run_id in self.plan.points:
            if self.plan.is_selected(run_id) and not self.is_done(run_id):
                yield run_id

    def _look(self, run_id: str) -> Status:
        path = self._layout.record(self.plan.points[run_id].device, run_id)
        if self._witnesses is None:
            self._witnesses = dict(shards.read_all(self.folder, self.plan.lab.devices))
        witness = self._witnesses.get(run_id)
        if witness is None:
            return status_of(path, run_id)
        try:
            stat = os.stat(path)
            if stat.st_size == witness.size_bytes and stat.st_mtime_ns == witness.mtime_ns:
                return _known(witness.status)
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return "missing"
        except OSError:
            return "broken"
        if hashlib.sha256(data).hexdigest() == witness.digest:
            return _known(witness.status)
        return status_in(data, run_id)


def _known(status: str) -> Status:
    """A status as a manifest wrote it; one that this version does not know is not believed."""
    if status == "ok":
        return "ok"
    if status == "failed":
        return "failed"
    return "hole" if status == "hole" else "broken"
