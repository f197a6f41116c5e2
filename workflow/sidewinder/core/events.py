"""An event: something that was seen, in the past tense. The engine makes them, ``Campaign.handle`` takes them.

Every instruction ends in exactly one event (``ReportDone`` alone in none); exceptions become events at the engine's
border. All are immutable tuples: a campaign of 50 000 points allocates some of each per point.
"""

from __future__ import annotations

from typing import NamedTuple

from sidewinder.model import OUTLIVES_S, AttemptId, Device, Evidence, Failure, Policy


class Work(NamedTuple):
    """What the core knows of a piece of work. ``work_id`` is opaque (a run id, or an ordinary job's id)."""

    work_id: str
    device: str
    priority: int = 0
    position: int = 0  # place in the device's order (``core/order.py``); lower runs first within a priority
    last_attempt: int = 0  # highest attempt that journal or device know of: the next one is one more
    in_flight: bool = False  # the journal says that `last_attempt` was started and never ended: ask before starting
    exclusive: bool = False  # an ordinary job of the controller: a turn is all it wants (no journal, no record)
    kind: str = "pinned"  # "pinned" now; "fungible" and "gang" follow


class Earlier(NamedTuple):
    """How an earlier invocation left a device that was down or quarantined."""

    reason: str
    quarantined: bool = False
    down_s: float = 0.0  # how long no run had come back by now: for people, giving up counts this invocation alone


class DeviceAdded(NamedTuple):
    device: Device
    name: str = ""  # what messages call it, where ``device.id`` is only the engine's key; "": the id
    policy: Policy | None = None  # its lab's; None: the campaign's
    earlier: Earlier | None = None  # None: it was in service, or nobody has used it yet
    in_flight: tuple[AttemptId, ...] = ()  # may run on it right now, says the journal, whether queued here or not
    outlives_s: float = OUTLIVES_S


class PointsQueued(NamedTuple):
    works: tuple[Work, ...]


class Journaled(NamedTuple):
    """The claim of this attempt is on the controller's disk, synced. Only now may it be started."""

    attempt: AttemptId


class JournalFailed(NamedTuple):
    attempt: AttemptId
    error: str


class AttemptStarted(NamedTuple):
    """The device took the attempt (or had it already: starting is idempotent)."""

    attempt: AttemptId


class AttemptBusy(NamedTuple):
    """The device's slot is held by somebody else's run; ``mine`` when it is an earlier run of this controller."""

    attempt: AttemptId
    holder: str
    mine: bool = False


class AttemptStale(NamedTuple):
    """The device has seen a higher attempt number than this one."""

    attempt: AttemptId
    max_attempt: int


class AttemptRefused(NamedTuple):
    """The attempt could not be made for a reason that is not the link: bad task, unfit device, our own bug."""

    attempt: AttemptId
    failure: Failure


class StatusAnswered(NamedTuple):
    """``state``: "absent", "running", "finished", "lost" (rebooted or runner died)."""

    attempt: AttemptId
    state: str
    max_attempt: int = 0


class ResultArrived(NamedTuple):
    """The raw result is on the controller (in the engine's hands)."""

    attempt: AttemptId
    evidence: Evidence


class AttemptDied(NamedTuple):
    """What the attempt ran in is proven over (its pod was evicted, say), for a reason that is known: nothing of it runs
    or will ever arrive. ``failure.evidence`` names cause and proof. Of one that was being started only where it was
    preempted: what else ended there may be no end of this attempt."""

    attempt: AttemptId
    failure: Failure


class Parsed(NamedTuple):
    """The workload's parser spoke: ``failure`` is None for a result."""

    attempt: AttemptId
    failure: Failure | None


class Published(NamedTuple):
    """The record is on disk under its final name."""

    work_id: str


class PublishFailed(NamedTuple):
    """The controller's disk refused the record (full, read-only): the run takes no new work."""

    work_id: str
    error: str


class Acked(NamedTuple):
    """The device forgot the attempt's result, or could not be told (harmless: it forgets by age)."""

    attempt: AttemptId


class KillProven(NamedTuple):
    attempt: AttemptId


class KillUnproven(NamedTuple):
    attempt: AttemptId
    reason: str


class TransportFailed(NamedTuple):
    """Anything about this attempt that failed on the way: connect, start, wait, fetch, or "could not look".

    ``may_run_s``: how long it may still run from now on. 0: it was never sent, or is over; None: not known, at most
    as long as a run outlives its link."""

    attempt: AttemptId
    error: str
    may_run_s: float | None = None


class ExclusiveEnded(NamedTuple):
    """An ordinary job that held the controller's turn has ended."""

    work_id: str


class ProbeAnswered(NamedTuple):
    """``unfit``: the device answered, and what it said takes it out at once (class ``device``)."""

    device: str
    ok: bool
    error: str = ""
    unfit: bool = False


class TimerFired(NamedTuple):
    timer: str


class CancelRequested(NamedTuple):
    """A person pressed Ctrl-C or SIGTERM came. ``drain`` lets running attempts finish; else they are killed."""

    drain: bool


class Moved(NamedTuple):
    """A copy of this work was made for another device, which was looked at before. ``moved_to`` is the copy's name on
    disk; ``copy`` None: that device has measured it already, in an earlier invocation."""

    work_id: str
    to_device: str
    moved_to: str
    copy: Work | None


class MoveRefused(NamedTuple):
    """The other device cannot take the work over: it does not answer, is unfit, or has no use for it."""

    work_id: str
    to_device: str
    error: str


class DeviceQuarantined(NamedTuple):
    device: str
    reason: str


Event = (
    DeviceAdded
    | PointsQueued
    | Journaled
    | JournalFailed
    | AttemptStarted
    | AttemptBusy
    | AttemptStale
    | AttemptRefused
    | StatusAnswered
    | ResultArrived
    | AttemptDied
    | Parsed
    | Published
    | PublishFailed
    | Acked
    | KillProven
    | KillUnproven
    | TransportFailed
    | ExclusiveEnded
    | ProbeAnswered
    | TimerFired
    | CancelRequested
    | Moved
    | MoveRefused
    | DeviceQuarantined
)
