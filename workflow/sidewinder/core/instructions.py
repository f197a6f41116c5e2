"""An instruction: something the engine must do, in the imperative. ``Campaign.handle`` hands them out.

Each ends in exactly one event about the same attempt, work or device, named in its docstring; ``ReportDone`` and
``Note`` alone end in none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sidewinder.model import AttemptId, Failure


class Journal(NamedTuple):
    """Put the claim of this attempt on disk, synced → ``Journaled`` | ``JournalFailed``."""

    attempt: AttemptId
    device: str


class AskStatus(NamedTuple):
    """Ask the device what it knows of the attempt → ``StatusAnswered`` | ``TransportFailed``."""

    attempt: AttemptId
    device: str


class StartAttempt(NamedTuple):
    """Build the task and start it → ``AttemptStarted`` | ``AttemptBusy`` | ``AttemptStale`` | ``AttemptRefused`` |
    ``TransportFailed``. ``slot`` (0 … max_concurrency-1) names the device's slot lock."""

    attempt: AttemptId
    device: str
    slot: int


class Attach(NamedTuple):
    """Wait until the attempt has ended on the device, heartbeats included, and fetch its raw result →
    ``ResultArrived`` | ``TransportFailed``."""

    attempt: AttemptId
    device: str


class Kill(NamedTuple):
    """Stop the attempt and prove it dead → ``KillProven`` | ``KillUnproven`` | ``TransportFailed``."""

    attempt: AttemptId
    device: str


class Parse(NamedTuple):
    """Let the workload read the raw result → ``Parsed``."""

    attempt: AttemptId


class Publish(NamedTuple):
    """Put the record on disk → ``Published`` | ``PublishFailed``. ``attempt`` is None for a hole."""

    work_id: str
    attempt: AttemptId | None
    failure: Failure | None


class Ack(NamedTuple):
    """Tell the device to forget the attempt's result → ``Acked``."""

    attempt: AttemptId
    device: str


class RunExclusive(NamedTuple):
    """It is this ordinary job's turn on the controller: run it → ``ExclusiveEnded``."""

    work_id: str
    device: str


class Move(NamedTuple):
    """Look at ``to_device`` (a sign of health, its clock) and make it a copy of this work, under a run id of its own →
    ``Moved`` | ``MoveRefused``. ``reason``: why its own device cannot measure it."""

    work_id: str
    device: str
    to_device: str
    reason: str


class Probe(NamedTuple):
    """Ask the device for a sign of health, cheaply → ``ProbeAnswered``. ``call``: only whether it answers."""

    device: str
    call: bool = False


class SetTimer(NamedTuple):
    """→ ``TimerFired(timer)`` at ``at_s`` on the monotonic clock."""

    timer: str
    at_s: float


class ReportDone(NamedTuple):
    """This piece of work is over. ``outcome``: "ok", "failed", "hole", "cancelled"."""

    work_id: str
    outcome: str
    failure: Failure | None = None


class Note(NamedTuple):
    """Something a person should see and the ledger should keep (a retry, a breaker change, a dropped event)."""

    kind: str
    device: str
    work_id: str | None
    fields: dict[str, Any]


Instruction = (
    Journal
    | AskStatus
    | StartAttempt
    | Attach
    | Kill
    | Parse
    | Publish
    | Ack
    | RunExclusive
    | Move
    | Probe
    | SetTimer
    | ReportDone
    | Note
)
