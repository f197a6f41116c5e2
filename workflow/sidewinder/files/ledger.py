"""The ledger: ``retries.jsonl``, the lines of the journal that a person asks about, written the moment they happen.

mlsys wrote it when the sweep ended, so that a killed controller lost it (M-119 and its first known defect).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import appendlog, atomic
from .layout import RunFolder

_ERROR_CHARS = 600


def told_of(folder: str, since: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """The lines about these run ids, from the attempt that is said on: what no record tells of yet."""
    told: dict[str, list[dict[str, Any]]] = {}
    for line in appendlog.read(RunFolder(folder).retries) if since else ():
        if line is not None and (first := since.get(line.get("run_id", ""))) and line.get("attempt", 0) >= first:
            told.setdefault(line["run_id"], []).append(line)
    return told


class Ledger(appendlog.AppendLog):
    """The writing end of a run folder's ledger. Lines are not synced one by one: the journal is what decides."""

    def __init__(self, folder: str, *, ops: atomic.FileOps = atomic.REAL) -> None:
        super().__init__(RunFolder(folder).retries, what="ledger of retries", ops=ops)

    def transport_failure(
        self,
        *,
        run_id: str,
        device: str,
        model: str | None,
        mode: str,
        attempt: int,
        max_attempts: int,
        error: str,
        breaker_opened: bool,
        utc: str,
        **more: Any,
    ) -> None:
        self.note(
            "transport_failure",
            run_id=run_id,
            device=device,
            model=model,
            mode=mode,
            attempt=attempt,
            max_attempts=max_attempts,
            error=error[:_ERROR_CHARS],
            breaker_opened=breaker_opened,
            utc=utc,
            **more,
        )

    def failover(
        self,
        *,
        run_id: str,
        moved_run_id: str,
        from_device: str,
        to_device: str,
        model: str | None,
        reason: str,
        note: str,
        utc: str,
        **more: Any,
    ) -> None:
        self.note(
            "failover",
            run_id=run_id,
            moved_run_id=moved_run_id,
            from_device=from_device,
            to_device=to_device,
            model=model,
            reason=reason[:_ERROR_CHARS],
            note=note,
            utc=utc,
            **more,
        )

    def note(self, event: str, **fields: Any) -> None:
        """Any other line for people: repeat, preempted, reattached, adopted, device_down, probe_failed, …"""
        self.append({"event": event, **{key: value for key, value in fields.items() if value is not None}}, sync=False)
