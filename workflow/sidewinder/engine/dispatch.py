"""The dispatch: how each instruction of the core is carried out. One method each, ending in one event.

A method that can answer at once returns its event; one that waits for a device is a coroutine. What they raise becomes
an event in ``border``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sidewinder.core.events import (
    Acked,
    AttemptBusy,
    AttemptStale,
    AttemptStarted,
    Event,
    KillProven,
    KillUnproven,
    Parsed,
    ProbeAnswered,
    Published,
    ResultArrived,
    StatusAnswered,
)
from sidewinder.core.instructions import Ack, AskStatus, Attach, Kill, Parse, Probe, Publish, StartAttempt
from sidewinder.errors import TransportError
from sidewinder.model import Evidence, RawResult

from .clock import utc_now
from .devices import DeviceLink
from .jobs import Job

# Up to here the parser costs less than the hop to a thread and back (about 0.1 ms) is worth.
PARSE_INLINE_BYTES = 65_536

Answer = Event | Awaitable[Event]


class Dispatch:
    def __init__(self, jobs: dict[str, Job], links: dict[str, DeviceLink]) -> None:
        self._jobs, self._links = jobs, links
        self.table: dict[type[Any], Callable[[Any], Answer]] = {
            AskStatus: self.ask_status,
            StartAttempt: self.start,
            Attach: self.attach,
            Kill: self.kill,
            Parse: self.parse,
            Publish: self.publish,
            Ack: self.ack,
            Probe: self.probe,
        }

    # -- the device

    def ask_status(self, instruction: AskStatus) -> Answer:
        attempt = instruction.attempt
        job = self._jobs[attempt.work_id]
        if job.inline:
            return StatusAnswered(attempt, "absent")
        return self._ask_status(instruction, job)

    async def _ask_status(self, instruction: AskStatus, job: Job) -> Event:
        attempt = instruction.attempt
        async with _Use(job.link) as client:
            status = await client.status(job.run_id, attempt.n)
        if status.state in ("running", "finished"):
            job.adopted(attempt.n)
        return StatusAnswered(attempt, status.state, status.max_attempt)

    def start(self, instruction: StartAttempt) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if job.inline:
            job.build()
            job.starting(instruction.attempt.n, utc_now())
            return AttemptStarted(instruction.attempt)
        return self._start(instruction, job)

    async def _start(self, instruction: StartAttempt, job: Job) -> Event:
        attempt = instruction.attempt
        await job.prepare()
        task = job.build()
        job.starting(attempt.n, utc_now())
        async with _Use(job.link) as client:
            answer = await client.start(job.run_id, attempt.n, task, _slot(job.link, instruction.slot))
        match answer.state:
            case "busy":
                holder = answer.holder
                if answer.mine:  # under the name by which the core may know it
                    holder = f"{attempt.work_id.partition(':')[0]}:{holder}"
                return AttemptBusy(attempt, holder, answer.mine)
            case "stale":
                return AttemptStale(attempt, answer.max_attempt)
        return AttemptStarted(attempt)

    def attach(self, instruction: Attach) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if job.inline:
            return ResultArrived(instruction.attempt, Evidence("done", 0))
        return self._attach(instruction, job)

    async def _attach(self, instruction: Attach, job: Job) -> Event:
        attempt = instruction.attempt
        async with _Use(job.link) as client:
            await client.wait(job.run_id, attempt.n)
            raw = await client.fetch(job.run_id, attempt.n)
        job.arrived(attempt.n, raw, utc_now())
        return ResultArrived(attempt, evidence_of(raw))

    async def kill(self, instruction: Kill) -> Event:
        # not by way of the job: what is killed may be a left-over of a work that is over or unknown here
        attempt = instruction.attempt
        async with _Use(self._links[instruction.device]) as client:
            dead = await client.stop(run_id_of(attempt.work_id), attempt.n)
        if dead:
            return KillProven(attempt)
        return KillUnproven(attempt, "the device could not prove that every process of the run is gone")

    def ack(self, instruction: Ack) -> Answer:
        job = self._jobs.get(instruction.attempt.work_id)
        if job is not None and job.inline:
            return Acked(instruction.attempt)
        return self._ack(instruction)

    async def _ack(self, instruction: Ack) -> Event:
        attempt = instruction.attempt
        async with _Use(self._links[instruction.device]) as client:
            await client.ack(run_id_of(attempt.work_id), attempt.n)
        return Acked(instruction.attempt)

    async def probe(self, instruction: Probe) -> Event:
        async with _Use(self._links[instruction.device]) as client:
            await client.look(())
        return ProbeAnswered(instruction.device, True)

    # -- the controller

    def parse(self, instruction: Parse) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if job.is_ready and not _is_big(job.raw):
            return Parsed(instruction.attempt, job.parse())
        return self._parse(instruction, job)

    async def _parse(self, instruction: Parse, job: Job) -> Event:
        await job.prepare()  # an adopted run was started by an earlier controller: make its task again
        if _is_big(job.raw):
            return Parsed(instruction.attempt, await asyncio.to_thread(job.parse))
        return Parsed(instruction.attempt, job.parse())

    def publish(self, instruction: Publish) -> Answer:
        self._jobs[instruction.work_id].publish(instruction.failure, utc_now())
        return Published(instruction.work_id)


class _Use:
    """The client of a link for one operation; when the way fails meanwhile, the next operation connects anew."""

    def __init__(self, link: DeviceLink) -> None:
        self._link = link
        self._client: Any = None

    async def __aenter__(self) -> Any:
        self._client = await self._link.client()
        return self._client

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TransportError):
            await self._link.lost(self._client)


def run_id_of(work_id: str) -> str:
    """The name by which the device knows a work: without the number of the lab in front."""
    return work_id.partition(":")[2]


def _slot(link: DeviceLink, slot: int) -> str:
    """The name of a slot's lock on the device: ``slot``, ``slot.1``, …"""
    return link.device.lock if slot == 0 else f"{link.device.lock}.{slot}"


def _is_big(raw: RawResult | None) -> bool:
    return raw is not None and len(raw.stdout.head) + len(raw.stdout.tail) > PARSE_INLINE_BYTES


def evidence_of(raw: RawResult) -> Evidence:
    return Evidence(raw.state, raw.returncode, raw.error, raw.detail, raw.oom_kills)
