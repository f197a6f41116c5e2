"""The reactor: the loop's side of the engine. It feeds the campaign events and has its instructions carried out.

Everything here lives in one asyncio loop. Events wait in one queue and are handled one after the other; whatever
escapes is a bug, and ends the engine loudly (``crash``).
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from sidewinder.core.campaign import Campaign
from sidewinder.core.events import (
    AttemptDied,
    AttemptStarted,
    CancelRequested,
    DeviceAdded,
    DeviceQuarantined,
    Event,
    ExclusiveEnded,
    PointsQueued,
    TimerFired,
    TransportFailed,
    Work,
)
from sidewinder.core.instructions import Instruction, Journal, Note, ReportDone, RunExclusive, SetTimer
from sidewinder.errors import DeviceFault, InternalError
from sidewinder.machines import CONTROLLER_GROUP
from sidewinder.model import EMPTY, Device, Failure, FailureClass, Policy

from .border import event_for
from .callbacks import Callbacks, Key
from .claims import Claims
from .clock import utc_now
from .devices import DeviceLink
from .dispatch import Dispatch
from .ends import Ends
from .greeting import Greeting
from .jobs import Job
from .notices import warnings_before
from .ordinary import TURN, OrdinaryJobs, Run
from .pointjob import PointJob
from .session import Session
from .shard import Shard

# After this long the loop gets a turn: heartbeats of other devices must not wait for a burst of cheap points.
SLICE_S = 0.02
CONTROLLER = Device("controller", "local", resource_group=CONTROLLER_GROUP, group_max_concurrency=1)


class Reactor:
    def __init__(self, callbacks: Callbacks, *, whole_sweep: bool = True, ordinary_cores: int | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks = callbacks
        self._campaign = Campaign(Policy(), random.Random())
        self._whole_sweep = whole_sweep  # not for single points: totals and schedule are the sweep's
        self._ends = Ends(callbacks)
        self._sessions: list[Session] = []
        self._jobs: dict[str, Job] = {}
        self._links: dict[str, DeviceLink] = {}
        self._greeting = Greeting(self._ends.notices.warning)
        self._dispatch = Dispatch(self._jobs, self._links, self._note, self._greeting, self._shares)
        self._events: deque[Event] = deque()
        self._claims = Claims()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pump_is_due = False
        self._before: dict[type[Any], Callable[[Any], None]] = {
            AttemptStarted: self._on_started,
            TransportFailed: self._on_transport_failed,
            AttemptDied: self._on_died,
        }
        self._controller_added = False
        self._ordinary = OrdinaryJobs(
            call_soon=self._loop.call_soon_threadsafe,
            queue_turn=self._queue_turn,
            turn_ended=lambda work_id: self.happened(ExclusiveEnded(work_id)),
            started=self._ordinary_started,
            done=self._ordinary_done,
            cores=ordinary_cores,
        )
        self._idle = asyncio.Event()
        self._idle.set()
        self.crashed = asyncio.Event()
        self.error: BaseException | None = None

    # -- handing over

    def add(self, session: Session, devices: frozenset[str] | None = None) -> None:
        """``devices``: only these. None: all of the lab."""
        policy = session.plan.lab.policy
        self._sessions.append(session)
        if self._whole_sweep:
            self._ends.add(session)
        for device in session.core_devices():
            name = device.id.partition(":")[2]
            if devices is not None and name not in devices:
                continue  # one that is down would be probed, and nobody waits for it
            self._links[device.id] = session.links[name]
            self._greeting.know(device, session.links[name], is_well=session.health.earlier(name) is None)
            session.links[name].tell = partial(self._ends.remark, session, name)
            session.links[name].waiting.told = partial(self._ends.waiting, session, name)
            # a sibling's runs are its own business: devices shared by two controllers share no turns
            in_flight = session.in_flight(name) if self._whole_sweep else ()
            self.happened(DeviceAdded(device, name, policy, session.health.earlier(name), in_flight))
        measured_here = any(device.kind == "local" for device in session.plan.lab.devices.values())
        if measured_here and not policy.controller_shares_local:
            self._ordinary.takes_turns = True

    def submit(self, session: Session, items: Iterable[tuple[Key, str]]) -> None:
        """Points of one lab. What is done already is reported so and not measured, unless a person forced it."""
        self._ends.totals(session)
        works = []
        for key, run_id in items:
            if run_id not in session.forced and session.is_done(run_id):
                self._ends.already_done(session, run_id, key)
                self._callbacks.on_done(key, "ok", None)
            else:
                works.append(self._open(session, run_id, key, None))
        self._queue(works)

    def submit_shard(self, session: Session, name: str, run_ids: Sequence[str], key: Key) -> None:
        self._ends.totals(session)
        shard = Shard(session, name, run_ids, key)
        works = []
        for run_id in run_ids:
            if run_id not in session.forced and session.is_done(run_id):
                self._ends.already_done(session, run_id, key)
            else:
                works.append(self._open(session, run_id, key, shard))
                shard.open.add(run_id)
        if works:
            self._queue(works)
        else:
            self._ends.shard_over(shard)

    def _open(self, session: Session, run_id: str, key: Key, shard: Shard | None) -> Work:
        work = session.work(run_id)
        if work.work_id in self._jobs:
            raise InternalError(f"{run_id} was handed over twice")
        job = PointJob(session, run_id, key)
        for sentence in warnings_before(session.told_before.get(run_id, ())):
            job.warn(sentence)
        job.shard = shard
        self._jobs[work.work_id] = job
        if not job.inline:
            self._greeting.expect(work.device)
        return work

    def submit_job(self, work: Work, job: Job) -> None:
        self._jobs[work.work_id] = job
        self._greeting.expect(work.device)
        self._queue([work])

    def submit_exclusive(self, key: Key, run: Run, cores: int = 1) -> None:
        self._idle.clear()
        self._ordinary.submit(key, run, cores)

    def cancel(self, drain: bool) -> None:
        self._ordinary.stop()
        self._dispatch.stop()
        self.happened(CancelRequested(drain))

    async def wait_idle(self) -> bool:
        """Until nothing is open (True), or the engine has crashed (False; ``error`` says why)."""
        await self._idle.wait()
        return self.error is None

    async def close(self) -> None:
        """Let go of everything. What still runs on a device ends there, by its lease at the latest."""
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._greeting.close()
        self._ends.close()
        await asyncio.gather(*(session.close() for session in self._sessions))

    def explain(self, work_id: str) -> list[str]:
        return self._campaign.explain(work_id, self._loop.time())

    # -- the pump

    def happened(self, event: Event) -> None:
        self._events.append(event)
        if not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)

    def _queue(self, works: Sequence[Work]) -> None:
        if works:
            self._idle.clear()
            self.happened(PointsQueued(tuple(works)))

    def _pump(self) -> None:
        self._pump_is_due = False
        if self.error is not None:
            return
        try:
            self._run_slice(self._loop.time() + SLICE_S)
        except BaseException as error:  # noqa: BLE001 -- the one place where a bug of ours is caught: it ends the run
            self.crash(error)
            return
        if self._events and not self._pump_is_due:
            self._pump_is_due = True
            self._loop.call_soon(self._pump)
        self._look_whether_idle()

    def _task_over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._look_whether_idle()

    def _look_whether_idle(self) -> None:
        if not (self._jobs or self._events or self._claims or self._tasks or self._ordinary.open):
            self._idle.set()

    def _run_slice(self, until_s: float) -> None:
        events, handle, time = self._events, self._campaign.handle, self._loop.time
        while True:
            while events:
                event = events.popleft()
                before = self._before.get(type(event))
                if before is not None:
                    before(event)
                for instruction in handle(event, time()):
                    self._carry_out(instruction)
                if time() > until_s:
                    break
            if self._claims:
                events.extend(self._claims.write())
            refusal = self._ends.publish_pending()
            if refusal is not None:
                self._ends.notices.warning(f"no new work is taken: {refusal}")
                self.cancel(drain=True)
            if not events or time() > until_s:
                return

    def _carry_out(self, instruction: Instruction) -> None:
        method = self._dispatch.table.get(type(instruction))
        if method is None:
            self._own(instruction)
            return
        try:
            answer = method(instruction)
        except Exception as error:  # noqa: BLE001 -- what is no event here is raised again
            self._events.append(self._event_for(instruction, error))
            return
        if isinstance(answer, tuple):
            self._events.append(answer)
        else:
            task = self._loop.create_task(self._wait_for(instruction, answer))
            self._tasks.add(task)
            task.add_done_callback(self._task_over)

    async def _wait_for(self, instruction: Instruction, answer: Any) -> None:
        """One instruction that takes time: it ends in exactly one event, or in a crash."""
        try:
            self.happened(await answer)
        except Exception as error:  # noqa: BLE001 -- what is no event is a crash
            try:
                self.happened(self._event_for(instruction, error))
            except Exception as bug:  # noqa: BLE001
                self.crash(bug)

    def _event_for(self, instruction: Instruction, error: Exception) -> Event:
        event = event_for(instruction, error)
        if event is None:
            raise InternalError(
                f"{type(instruction).__name__} of {_subject(instruction)} met what it must not: "
                f"{type(error).__name__}: {error}"
            ) from error
        device = getattr(instruction, "device", None)
        if isinstance(error, DeviceFault) and device is not None and isinstance(event, TransportFailed):
            self._events.append(DeviceQuarantined(device, str(error)))
        return event

    # -- instructions that are the reactor's own

    def _own(self, instruction: Instruction) -> None:
        match instruction:
            case Journal():
                event = self._claims.add(instruction, self._jobs[instruction.attempt.work_id])
                if event is not None:
                    self._events.append(event)
            case ReportDone():
                self._report(instruction)
            case SetTimer(timer=timer, at_s=at_s):
                old = self._timers.pop(timer, None)
                if old is not None:
                    old.cancel()
                self._timers[timer] = self._loop.call_at(at_s, self._fire, timer)
            case RunExclusive(work_id=work_id):
                self._ordinary.take_turn(work_id)
            case Note():
                self._note(instruction)
            case _:
                raise InternalError(f"nobody carries out {type(instruction).__name__}")

    def _fire(self, timer: str) -> None:
        self._timers.pop(timer, None)
        self.happened(TimerFired(timer))

    def _report(self, instruction: ReportDone) -> None:
        work_id = instruction.work_id
        if not work_id.startswith(TURN):
            self._ends.over(self._jobs.pop(work_id), instruction.outcome, instruction.failure)
        elif instruction.outcome == "cancelled":
            self._ordinary.cancelled(work_id)

    # -- what the engine itself remembers of an event, before the core decides

    def _on_started(self, event: AttemptStarted) -> None:
        job = self._jobs[event.attempt.work_id]
        self._mark_overlap(job)
        self._ends.started(job, event.attempt.n)

    def _on_transport_failed(self, event: TransportFailed) -> None:
        job = self._jobs.get(event.attempt.work_id)
        if job is not None:
            job.attempt_failed(event.attempt.n, Failure(FailureClass.TRANSPORT, event.error), utc_now())

    def _shares(self, device: str) -> bool:
        """Whether others wait while this device has the turn."""
        return self._campaign.lanes[device].group.is_shared

    def _on_died(self, event: AttemptDied) -> None:
        job = self._jobs.get(event.attempt.work_id)
        if job is not None:
            job.attempt_failed(event.attempt.n, event.failure, utc_now())

    def _note(self, note: Note) -> None:
        index, colon, _ = note.device.partition(":")
        session = self._sessions[int(index)] if colon else None
        job = self._jobs.get(note.work_id) if note.work_id else None
        if note.kind == "retry" and job is not None:  # also of an attempt that did come home (preempted, lease over)
            fields = note.fields
            failure_class = FailureClass(fields.get("failure_class", "transport"))
            failure = Failure(failure_class, str(fields.get("error", "")), fields.get("evidence") or EMPTY)
            job.attempt_failed(fields["attempt"], failure, utc_now())
        self._ends.note(note, session, job)

    # -- ordinary jobs

    def _queue_turn(self, work_id: str) -> None:
        if not self._controller_added:
            self._controller_added = True
            self.happened(DeviceAdded(CONTROLLER))
        self._queue([Work(work_id, CONTROLLER.id, exclusive=True)])

    def _ordinary_done(self, key: Key, outcome: str, failure: Failure | None) -> None:
        self._callbacks.on_done(key, outcome, failure)
        self._loop.call_soon(self._look_whether_idle)

    def _ordinary_started(self, key: Key) -> None:
        if not self._ordinary.takes_turns:
            for job in self._jobs.values():
                if job.is_running and job.link.device.kind == "local":
                    job.warn(_overlap(key))

    def _mark_overlap(self, job: Job) -> None:
        if not self._ordinary.takes_turns and job.link.device.kind == "local":
            for key in self._ordinary.running:
                job.warn(_overlap(key))

    # -- the end with a bug

    def crash(self, error: BaseException) -> None:
        """End loudly. Records are safe; what runs on devices ends by lease and is found by the next controller."""
        if self.error is not None:
            return
        self.error = error
        self.crashed.set()
        self._idle.set()
        self._callbacks.on_crash(error)


def _subject(instruction: Instruction) -> Any:
    return getattr(instruction, "attempt", None) or getattr(instruction, "work_id", None) or instruction


def _overlap(key: Key) -> str:
    return f"ordinary job {key} ran on the same machine at the same time (controller_shares_local)"
