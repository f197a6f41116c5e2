"""A fake device: what really happens on a machine while a controller believes what it is told.

It knows attempts, slots, locks and leases as the agent does, and answers every instruction that concerns a device
with the event that a real engine would make of it. What goes wrong is either scripted (``script(Kill, KillUnproven)``)
or drawn from ``Faults`` with the random numbers it was given. ``runs`` is the truth that promises are held against.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.events import Event
from sidewinder.core.instructions import Instruction
from sidewinder.model import AttemptId, Evidence, Failure, FailureClass

OK = Evidence("done", 0)


@dataclass(slots=True)
class Faults:
    """How likely each kind of bad luck is, per instruction (shares of 1) or per second."""

    lost_request: float = 0.0  # the request never reaches the device
    lost_answer: float = 0.0  # it does, and the device acts, but nobody hears of it
    outages_per_s: float = 0.0
    outage_s: float = 20.0
    runner_dies: float = 0.0  # per run: its runner is killed half way, the measured tree lives on and keeps the lock
    unprovable: float = 0.0  # per kill
    reboots_per_s: float = 0.0
    stale: float = 0.0  # per start: the device has seen a higher number
    refused: float = 0.0  # per start
    quarantine: float = 0.0  # per start: refused because the device is unfit
    unfit: float = 0.0  # per contact: from now on, for a while, the agent cannot be had there (no Python, wrong key)
    unasked: float = 0.0  # per contact: the controller lacks what it takes to ask (its key file is gone)
    deaths_per_s: float = 0.0  # for good
    ends_per_s: float = 0.0  # the platform ends all that runs there, and says why (a pod that is evicted): `ENDS`
    foreign: float = 0.0  # per start: another controller's run is in the slot
    leftover: float = 0.0  # per start: a run that this controller once started and forgot is in the slot
    bad_result: float = 0.0  # per run: one of `BAD_ENDS`


#: Evidence of every way a run can end badly by itself.
BAD_ENDS = (
    Evidence("done", 3),
    Evidence("done", -9),
    Evidence("done", -9, oom_kills=1),
    Evidence("done", 143),
    Evidence("timeout"),
    Evidence("spawn_failed", error="not_found"),
    Evidence("refused", error="file_missing"),
    Evidence("refused", error="not_idle"),
    Evidence("done", 0, suspended_s=30.0),
    Evidence("done", 0, wrong_spec="its quota is another"),
    Evidence("timeout", limits_changed="its quota was changed"),
    Evidence("done", None),
    Evidence("refused", error="disk_full"),
    Evidence("lease_expired"),
    Evidence("stopped"),
)
#: How a platform ends a run, with what proves it.
ENDS = tuple(
    Failure(failure_class, f"the pod was ended ({cause})", {"cause": cause, "proof": "container"})
    for cause, failure_class in (
        ("preempted at the platform", FailureClass.PREEMPTED),
        ("out of memory as a whole", FailureClass.MEMORY),
        ("over its own limit of storage", FailureClass.MEASUREMENT),
        ("deleted by somebody", FailureClass.TRANSPORT),
    )
)
UNFIT_S = 300.0

_REFUSALS = (FailureClass.CONFIG, FailureClass.MEASUREMENT, FailureClass.TRANSPORT)


@dataclass(slots=True)
class Run:
    """One execution on the device, as it really was."""

    attempt: AttemptId
    slot: int
    start_s: float
    end_s: float
    evidence: Evidence
    lease_s: float
    heard_s: float  # the last heartbeat
    runner_dies_s: float | None = None
    alive: bool = True  # some process of it exists: it holds the slot's lock
    state: str = "running"  # "running" | "finished" | "lost" | "ended" (by the platform)
    death: Failure | None = None  # of one that the platform ended
    acked: bool = False
    cut_short: bool = False  # not its own end: lease, kill, reboot, a runner that died

    def tick(self, now_s: float) -> None:
        if not self.alive or self.state != "running":
            return
        if self.runner_dies_s is not None and now_s >= self.runner_dies_s:
            self.state, self.cut_short = "lost", True
            return
        lease_end_s = self.heard_s + self.lease_s
        if lease_end_s < self.end_s and now_s >= lease_end_s:
            self.end_s, self.evidence, self.cut_short = lease_end_s, Evidence("lease_expired"), True
        if now_s >= self.end_s:
            self.state, self.alive = "finished", False


@dataclass(slots=True)
class FakeDevice:
    id: str
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    faults: Faults = field(default_factory=Faults)
    run_s: float = 10.0
    lease_s: float = 60.0
    runs: list[Run] = field(default_factory=list)
    down_until_s: float = 0.0
    unfit_until_s: float = 0.0
    is_dead: bool = False
    _next_outage_s: float = -1.0
    _next_reboot_s: float = -1.0
    _dies_s: float = -1.0
    _next_end_s: float = -1.0
    _highest: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _foreign_until_s: dict[int, float] = field(default_factory=dict)
    _script: defaultdict[type, deque[type]] = field(default_factory=lambda: defaultdict(deque))
    _leftovers: int = 0

    def script(self, instruction: type, event: type) -> None:
        """The next instruction of this kind ends in this kind of event, whatever the truth is."""
        self._script[instruction].append(event)

    # -- time ---------------------------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Let everything happen that had to happen by now."""
        faults = self.faults
        if faults.outages_per_s:
            if self._next_outage_s < 0:
                self._next_outage_s = self.rng.expovariate(faults.outages_per_s)
            while now_s >= self._next_outage_s:
                self.down_until_s = self._next_outage_s + self.rng.expovariate(1 / faults.outage_s)
                self._next_outage_s = self.down_until_s + self.rng.expovariate(faults.outages_per_s)
        for run in self.runs:
            run.tick(now_s)
        if faults.reboots_per_s:
            if self._next_reboot_s < 0:
                self._next_reboot_s = self.rng.expovariate(faults.reboots_per_s)
            if now_s >= self._next_reboot_s:
                self._next_reboot_s = now_s + self.rng.expovariate(faults.reboots_per_s)
                self._all_runs_die(now_s)
        if faults.deaths_per_s and not self.is_dead:
            if self._dies_s < 0:
                self._dies_s = self.rng.expovariate(faults.deaths_per_s)
            if now_s >= self._dies_s:
                self.is_dead = True
                self._all_runs_die(now_s)

        if faults.ends_per_s:
            if self._next_end_s < 0:
                self._next_end_s = self.rng.expovariate(faults.ends_per_s)
            if now_s >= self._next_end_s:
                self._next_end_s = now_s + self.rng.expovariate(faults.ends_per_s)
                self._all_runs_end(now_s, self.rng.choice(ENDS))

    def _all_runs_end(self, now_s: float, death: Failure) -> None:
        for run in self.runs:
            if run.alive:
                if run.state == "running":
                    run.state, run.death = "ended", death
                run.alive, run.end_s, run.cut_short = False, now_s, True

    def _all_runs_die(self, now_s: float) -> None:
        for run in self.runs:
            if run.alive:
                run.state, run.alive, run.end_s, run.cut_short = "lost", False, now_s, True

    def is_up(self, now_s: float) -> bool:
        return now_s >= self.down_until_s and not self.is_dead

    def is_unfit(self, now_s: float) -> bool:
        """The agent cannot be had: the engine quarantines a device that it finds so."""
        return now_s < self.unfit_until_s

    def find(self, attempt: AttemptId) -> Run | None:
        return next((run for run in self.runs if run.attempt == attempt), None)

    def holder(self, slot: int) -> Run | None:
        return next((run for run in self.runs if run.alive and run.slot == slot), None)

    # -- instructions -------------------------------------------------------------------------------------------------

    def answer(self, instruction: Instruction, now_s: float) -> Event | float:
        """The event this instruction ends in, or, for ``Attach``, the time at which to ask again."""
        self.tick(now_s)
        if self.is_up(now_s) and self._happens(self.faults.unfit):
            self.unfit_until_s = now_s + self.rng.expovariate(1 / UNFIT_S)
        if isinstance(instruction, do.Probe):
            if not self.is_up(now_s) or self._happens(self.faults.lost_request):
                return ev.ProbeAnswered(self.id, False, "no route to host")
            if self.is_unfit(now_s) or self._happens(self.faults.unasked):
                return ev.ProbeAnswered(self.id, False, "python3: not found", unfit=True)
            return ev.ProbeAnswered(self.id, True)
        attempt: AttemptId = instruction.attempt  # type: ignore[union-attr, assignment]
        if self._script[type(instruction)]:
            return self._scripted(self._script[type(instruction)].popleft(), attempt)
        if isinstance(instruction, do.Ack):
            run = self.find(attempt)
            if run is not None and self.is_up(now_s):
                run.acked = True
            return ev.Acked(attempt)
        starts = isinstance(instruction, do.StartAttempt)
        if not self.is_up(now_s):
            return ev.TransportFailed(attempt, "no route to host", 0.0 if starts else None)
        if self.is_unfit(now_s):
            return self._unfit(instruction, attempt)
        if self._happens(self.faults.unasked):
            if starts:
                return ev.AttemptRefused(attempt, Failure(FailureClass.CONFIG, "no key file"))
            return ev.TransportFailed(attempt, "no key file")
        if self._happens(self.faults.lost_request):
            return ev.TransportFailed(attempt, "connection lost before the request arrived")
        event: Event | float
        match instruction:
            case do.AskStatus():
                event = self._status(attempt)
            case do.StartAttempt(_, _, slot):
                event = self._start(attempt, slot, now_s)
            case do.Attach():
                event = self._attach(attempt, now_s)
            case do.Kill():
                event = self._kill(attempt, now_s)
            case _:
                raise TypeError(f"{instruction!r} does not concern a device")
        if not isinstance(event, float) and self._happens(self.faults.lost_answer):
            return ev.TransportFailed(attempt, "connection lost before the answer arrived")
        return event

    def _unfit(self, instruction: Instruction, attempt: AttemptId) -> Event:
        """What the engine makes of a device that answers and cannot be used."""
        if isinstance(instruction, do.StartAttempt):
            return ev.AttemptRefused(attempt, Failure(FailureClass.DEVICE, "python3: not found"))
        if isinstance(instruction, do.Kill):
            return ev.KillUnproven(attempt, "python3: not found")
        return ev.TransportFailed(attempt, "python3: not found")

    def _scripted(self, kind: type, attempt: AttemptId) -> Event:
        if kind is ev.KillUnproven:
            return ev.KillUnproven(attempt, "a process would not die")
        if kind is ev.TransportFailed:
            return ev.TransportFailed(attempt, "connection reset")
        raise TypeError(f"no script for {kind.__name__}")

    def _happens(self, share: float) -> bool:
        return share > 0 and self.rng.random() < share

    def _status(self, attempt: AttemptId) -> Event:
        run = self.find(attempt)
        if run is not None and run.death is not None:
            return ev.AttemptDied(attempt, run.death)
        return ev.StatusAnswered(attempt, run.state if run else "absent", self._highest[attempt.work_id])

    def _start(self, attempt: AttemptId, slot: int, now_s: float) -> Event:
        run = self.find(attempt)
        if run is not None:
            return ev.AttemptStarted(attempt)  # idempotent: covers a lost answer
        if self._happens(self.faults.stale):
            self._highest[attempt.work_id] = max(self._highest[attempt.work_id], attempt.n + 2)
        if attempt.n <= self._highest[attempt.work_id]:
            return ev.AttemptStale(attempt, self._highest[attempt.work_id])
        if self._happens(self.faults.quarantine):
            return ev.AttemptRefused(attempt, Failure(FailureClass.DEVICE, "no space left on the device"))
        if self._happens(self.faults.refused):
            return ev.AttemptRefused(attempt, Failure(self.rng.choice(_REFUSALS), "cannot be built"))
        if self._happens(self.faults.foreign):
            self._foreign_until_s[slot] = now_s + self.rng.expovariate(1 / 30.0)
        if now_s < self._foreign_until_s.get(slot, 0.0):
            return ev.AttemptBusy(attempt, "run x of laptop-of-ada", False)
        if self.holder(slot) is None and self._happens(self.faults.leftover):
            self._leftovers += 1
            self._begin(AttemptId(f"leftover-{self.id}-{self._leftovers}", 1), slot, now_s)
        holder = self.holder(slot)
        if holder is not None:
            return ev.AttemptBusy(attempt, str(holder.attempt), True)
        self._begin(attempt, slot, now_s)
        if self.faults.ends_per_s and self._happens(0.01):
            self._all_runs_end(now_s, ENDS[0])  # before it could answer
            return ev.AttemptDied(attempt, ENDS[0])
        return ev.AttemptStarted(attempt)

    def _begin(self, attempt: AttemptId, slot: int, now_s: float) -> None:
        length_s = self.run_s * self.rng.uniform(0.5, 1.5)
        evidence = self.rng.choice(BAD_ENDS) if self._happens(self.faults.bad_result) else OK
        run = Run(attempt, slot, now_s, now_s + length_s, evidence, self.lease_s, now_s)
        if self._happens(self.faults.runner_dies):
            run.runner_dies_s = now_s + length_s * self.rng.random()
        self.runs.append(run)
        self._highest[attempt.work_id] = max(self._highest[attempt.work_id], attempt.n)

    def _attach(self, attempt: AttemptId, now_s: float) -> Event | float:
        run = self.find(attempt)
        if run is None or run.state == "lost":
            return ev.TransportFailed(attempt, "the runner is gone")
        if run.death is not None:
            return ev.AttemptDied(attempt, run.death)
        if run.state == "finished":
            return ev.ResultArrived(attempt, run.evidence)
        run.heard_s = now_s
        return min(run.end_s, now_s + 5.0) + 0.001

    def _kill(self, attempt: AttemptId, now_s: float) -> Event:
        run = self.find(attempt)
        if run is None or not run.alive:
            return ev.KillProven(attempt)
        if self._happens(self.faults.unprovable):
            return ev.KillUnproven(attempt, "a process would not die")
        run.alive, run.end_s, run.cut_short = False, now_s, True
        if run.state == "running":
            run.state, run.evidence = "finished", Evidence("stopped")
        return ev.KillProven(attempt)
