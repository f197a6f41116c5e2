"""A fake disk: what survives a controller, as bytes and records, and what its death leaves of both.

The journal holds the lines that the engine writes and is replayed by the code that reads real ones.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidewinder.files import journal
from sidewinder.files.layout import RunFolder
from sidewinder.model import AttemptId, Failure, FailureClass


class FakeRecord(NamedTuple):
    """A record under its final name. ``outcome``: "ok", "failed", "hole"."""

    outcome: str
    attempt: AttemptId | None
    failure: Failure | None
    invocation: int


def outcome_of(failure: Failure | None) -> str:
    if failure is None:
        return "ok"
    return "hole" if failure.failure_class is FailureClass.NOT_ATTEMPTED else "failed"


@dataclass(slots=True)
class FakeDisk:
    records: dict[str, FakeRecord] = field(default_factory=dict)
    failed_in: dict[str, int] = field(default_factory=dict)  # the last invocation that had a failed result of a work
    lines: bytearray = field(default_factory=bytearray)
    synced_bytes: int = 0

    def append(self, entry: dict[str, Any], *, sync: bool) -> None:
        if self.lines and self.lines[-1] != 10:  # a line that is torn costs itself alone
            self.lines += b"\n"
        self.lines += json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        if sync:
            self.sync()

    def sync(self) -> None:
        self.synced_bytes = len(self.lines)

    def controller_dies(self, rng: random.Random, *, power_cut: bool) -> str:
        """Cut the journal where such a death could: within the line that was being written, and after a power cut
        anywhere behind what was synced."""
        size = len(self.lines)
        if power_cut:
            size = rng.randint(self.synced_bytes, size)
        elif size > self.synced_bytes and rng.random() < 0.5:
            last = self.lines.rfind(b"\n", 0, size - 1) + 1
            size = rng.randint(max(last, self.synced_bytes), size)
        del self.lines[size:]
        self.sync()
        return "torn line" if self.lines and self.lines[-1] != 10 else "whole lines"

    def replay(self) -> journal.Replay:
        seen = journal.Replay()
        for line in bytes(self.lines).splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            seen.lines += 1
            if not isinstance(entry, dict) or not journal._apply(entry, seen):
                seen.torn += 1
        return seen

    def replay_as_a_file(self) -> journal.Replay:
        """The same by way of a real file."""
        with tempfile.TemporaryDirectory() as folder:
            path = RunFolder(folder).journal
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(self.lines)
            return journal.replay(folder)

    def claims(self) -> set[AttemptId]:
        """Every attempt that the journal says was to be started."""
        found = set()
        for line in bytes(self.lines).splitlines():
            if line.startswith(b'{"event":"claimed"'):
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                found.add(AttemptId(entry["run_id"], entry["n"]))
        return found
