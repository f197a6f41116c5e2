"""Callbacks: what the engine's owner (the executor plugin, ``sidewinder measure``) is told, from the engine's thread.

A key is what was handed over: ``(root, run_id)`` for a point, anything hashable for a rule or an ordinary job. Every
key that was handed over gets exactly one ``on_done``, unless the engine crashes: then ``on_crash`` is the last call.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from sidewinder.model import AttemptId, Failure

Key = Hashable


class Callbacks(Protocol):
    def on_started(self, key: Key, attempt: AttemptId) -> None:
        """The device took the work; called again for every further attempt, of a shard for its first point only."""

    def on_done(self, key: Key, outcome: str, failure: Failure | None) -> None:
        """``outcome``: "ok", "failed", "hole", or "cancelled" (a point then has no new record)."""

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Something for displays (docs/notes/contracts.md has the table)."""

    def on_crash(self, error: BaseException) -> None:
        """The engine has ended because of a bug. Published records are safe; nothing more will be called."""
