"""Ordinary jobs: work of the controller itself (rules that name no device), in turn with the points measured there.

An ordinary job beside a measurement on the same machine contaminates it, so the two take turns: a turn is one
exclusive work in the core, and in it as many ordinary jobs run side by side as the controller has cores for. Where no
lab measures on the controller, or all of them say ``controller_shares_local``, jobs do not wait.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from sidewinder.model import Failure, FailureClass

from .callbacks import Key

Run = Callable[[], Any]
TURN = "turn:"  # how the names of turns begin in the core


class _Job(NamedTuple):
    key: Key
    run: Run
    cores: int


class OrdinaryJobs:
    """Who waits, who runs. Lives in the engine's loop; only ``run()`` itself is in a thread of its own."""

    def __init__(
        self,
        *,
        call_soon: Callable[..., object],
        queue_turn: Callable[[str], None],
        turn_ended: Callable[[str], None],
        started: Callable[[Key], None],
        done: Callable[[Key, str, Failure | None], None],
        cores: int | None = None,
    ) -> None:
        self.takes_turns = False
        self._call_soon, self._queue_turn, self._turn_ended = call_soon, queue_turn, turn_ended
        self._started, self._done = started, done
        self._free = self._cores = cores or os.cpu_count() or 1
        self._waiting: deque[_Job] = deque()
        self._running: dict[Key, _Job] = {}
        self._turns = 0
        self._turn: str | None = None  # the work id of the turn that is queued or taken
        self._in_turn = False
        self._stopped = False

    @property
    def running(self) -> list[Key]:
        return list(self._running)

    @property
    def open(self) -> int:
        return len(self._waiting) + len(self._running)

    def submit(self, key: Key, run: Run, cores: int = 1) -> None:
        if self._stopped:
            self._done(key, "cancelled", None)
            return
        self._waiting.append(_Job(key, run, min(max(cores, 1), self._cores)))
        self._next()

    def take_turn(self, work_id: str) -> None:
        """The core gave the controller to the turn ``work_id``."""
        self._in_turn = True
        self._start_what_fits()
        self._maybe_end_turn()

    def cancelled(self, work_id: str) -> None:
        """The core will not give this turn any more."""
        self._turn = None
        self.stop()

    def stop(self) -> None:
        """Nothing new starts; what runs is its owner's to end."""
        self._stopped = True
        while self._waiting:
            self._done(self._waiting.popleft().key, "cancelled", None)

    # -- inside

    def _next(self) -> None:
        if not self.takes_turns:
            self._start_what_fits()
        elif self._turn is None and self._waiting:
            self._turns += 1
            self._turn = f"{TURN}{self._turns}"
            self._queue_turn(self._turn)

    def _start_what_fits(self) -> None:
        while self._waiting and self._waiting[0].cores <= self._free:
            job = self._waiting.popleft()
            self._free -= job.cores
            self._running[job.key] = job
            self._started(job.key)
            # a daemon: a job that hangs must not keep the interpreter from ending after Ctrl-C
            threading.Thread(target=self._work, args=(job,), name=f"ordinary-{job.key}", daemon=True).start()

    def _work(self, job: _Job) -> None:
        try:
            said = job.run()
            failure = said if isinstance(said, Failure) else None
        except Exception as error:  # noqa: BLE001 -- foreign code: whatever it raises is this job's failure
            failure = Failure(FailureClass.MEASUREMENT, f"{type(error).__name__}: {error}")
        try:
            self._call_soon(self._ended, job, failure)
        except RuntimeError:
            return  # the loop is closed: the engine was shut down and has answered for this job

    def _ended(self, job: _Job, failure: Failure | None) -> None:
        if self._running.pop(job.key, None) is None:
            return
        self._free += job.cores
        self._done(job.key, _outcome(failure), failure)
        if self._in_turn:
            # no new job joins a turn that has begun: measurements wait for it (docs/design.md §2, promise 5)
            self._maybe_end_turn()
        else:
            self._next()

    def _maybe_end_turn(self) -> None:
        if not self._running and self._turn is not None:
            turn, self._turn, self._in_turn = self._turn, None, False
            self._turn_ended(turn)
            self._next()


def _outcome(failure: Failure | None) -> str:
    if failure is None:
        return "ok"
    return "cancelled" if failure.failure_class is FailureClass.CANCELLED else "failed"
