"""The dispatch: how each instruction of the core is carried out. One method each, ending in one event.

A method that can answer at once returns its event; one that waits for a device is a coroutine. What they raise becomes
an event in ``border``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from sidewinder.core.events import (
    Acked,
    AttemptBusy,
    AttemptDied,
    AttemptRefused,
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
    TransportFailed,
)
from sidewinder.core.instructions import Ack, AskStatus, Attach, Kill, Move, Note, Parse, Probe, Publish, StartAttempt
from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import OUTLIVES_S, AttemptId, Evidence, Failure, FailureClass, RawResult

from . import moves
from .clock import utc_now
from .devices import DeviceLink
from .evidence import evidence_of
from .greeting import Greeting
from .jobs import Job
from .linkloss import LinkLoss, Tell

# Up to here the parser costs less than the hop to a thread and back (about 0.1 ms) is worth.
PARSE_INLINE_BYTES = 65_536
# A member of a group answered when it was called, without a turn. One that has to be made anew by now (its pod was
# deleted) is not waited for with the turn in hand: the attempt fails on the way, and the device is called again.
WITH_TURN_S = 20.0

Answer = Event | Awaitable[Event]


class Dispatch:
    def __init__(
        self,
        jobs: dict[str, Job],
        links: dict[str, DeviceLink],
        tell: Tell,
        greeting: Greeting,
        shares: Callable[[str], bool],
    ) -> None:
        """``tell`` takes notes for people: a link that broke and came back changes nothing for the core. ``shares``:
        whether others wait while this device has the turn."""
        self._shares = shares
        self._jobs, self._links, self._tell, self._greeting = jobs, links, tell, greeting
        self._losses: dict[AttemptId, LinkLoss] = {}  # of the attempts that are waited for
        self._stopped = asyncio.Event()
        self.table: dict[type[Any], Callable[[Any], Answer]] = {
            AskStatus: self.ask_status,
            StartAttempt: self.start,
            Attach: self.attach,
            Kill: self.kill,
            Parse: self.parse,
            Publish: self.publish,
            Ack: self.ack,
            Probe: self.probe,
            Move: self.move,
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
        await self._have(instruction.device, job)
        async with job.link.client() as client:
            status = await client.status(job.run_id, attempt.n)
        if status.state in ("running", "finished"):
            job.adopted(attempt.n)
        elif status.death is not None:
            return AttemptDied(attempt, status.death)
        return StatusAnswered(attempt, status.state, status.max_attempt)

    def start(self, instruction: StartAttempt) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if job.inline:
            job.build()
            job.starting(instruction.attempt.n, utc_now())
            return AttemptStarted(instruction.attempt)
        return self._start(instruction, job)

    async def _start(self, instruction: StartAttempt, job: Job) -> Event:
        attempt, may_run_s, left = instruction.attempt, 0.0, job.link.left
        await self._greeting.over()
        try:
            await self._have(instruction.device, job)
            if not job.brings:
                await job.prepare()
            elif not await self._before_a_stop(self._bring(instruction, job)):
                said = f"stopped while its files were brought to {job.link.device.id}"
                return AttemptRefused(attempt, Failure(FailureClass.CANCELLED, said))
            task = job.build()
            job.starting(attempt.n, utc_now())
            async with job.link.client() as client:
                await job.link.clock.before_run(client)
                may_run_s = OUTLIVES_S  # the start is on its way
                job.begins(attempt.n, client.boot_of(job.run_id, attempt.n))
                started = await client.start(job.run_id, attempt.n, task, instruction.slot)
        except TransportError as error:
            death = await job.link.death_since(left)
            if death is not None and death.failure_class is FailureClass.PREEMPTED:
                return AttemptDied(attempt, death)  # any other end may be none of this attempt's: the device is asked
            return TransportFailed(attempt, str(error), may_run_s)
        match started.outcome:
            case "busy":
                if started.mine and started.held_by is not None:
                    _, run_id, n = started.held_by  # under the name by which the core may know it
                    lab = attempt.work_id.partition(":")[0]
                    return AttemptBusy(attempt, str(AttemptId(f"{lab}:{run_id}", n)), True)
                return AttemptBusy(attempt, started.holder)
            case "stale":
                return AttemptStale(attempt, started.max_attempt)
        return AttemptStarted(attempt)

    async def _have(self, device: str, job: Job) -> None:
        """The device is connected where others wait for its turn, at most ``WITH_TURN_S`` long."""
        if self._shares(device):
            await _within(WITH_TURN_S, job.link)

    async def _bring(self, instruction: StartAttempt, job: Job) -> None:
        def tell(file: str, have: int, total: int) -> None:
            fields = {"file": file, "bytes": have, "total_bytes": total}
            self._tell(Note("staging", instruction.device, instruction.attempt.work_id, fields))

        await job.prepare()
        job.build()  # a task that cannot be built costs no transfer
        await job.bring(tell)

    def stop(self) -> None:
        """Nothing new begins: what is not on its device yet need not get there."""
        self._stopped.set()

    async def _before_a_stop(self, work: Coroutine[Any, Any, None]) -> bool:
        """False: a person wanted to stop before it was over. Files take minutes, Ctrl-C does not wait for them."""
        working = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                return True
            return False
        finally:
            working.cancel()
            stopped.cancel()
            await asyncio.gather(working, stopped, return_exceptions=True)

    def attach(self, instruction: Attach) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if job.inline:
            return ResultArrived(instruction.attempt, Evidence("done", 0))
        return self._attach(instruction, job)

    async def _attach(self, instruction: Attach, job: Job) -> Event:
        attempt = instruction.attempt
        loss = LinkLoss(attempt, instruction.device, job.link.lease_s, self._tell)
        self._losses[attempt] = loss
        try:
            while True:
                try:
                    return await self._attach_once(attempt, job, loss)
                except TransportError as error:
                    # Known at once, it need not wait for a new pod, which may find no room for hours.
                    death = await job.link.death_of(job.run_id, attempt.n)
                    if death is not None:
                        return AttemptDied(attempt, death)
                    if not await loss.pause(error):
                        return TransportFailed(attempt, str(error), loss.may_run_s)
        finally:
            if self._losses.get(attempt) is loss:
                del self._losses[attempt]

    async def _attach_once(self, attempt: AttemptId, job: Job, loss: LinkLoss) -> Event:
        # An adopted run was started by an earlier controller: learn again what its parser needs to know, while a device
        # that cannot be asked still means "try again".
        if loss.left_s is not None:  # a pod that is gone may be away for hours, the run is over long before
            await _within(loss.left_s, job.link)
        await job.prepare()
        async with job.link.client() as client:
            if loss.is_open:
                loss.over((await client.status(job.run_id, attempt.n)).state)
            ended = await client.wait(job.run_id, attempt.n)
            if ended.death is not None:
                return AttemptDied(attempt, ended.death)
            if ended.state != "finished":
                # rebooted, or its runner died: what that means is decided when the core has asked
                why = f" ({ended.why})" if ended.why else ""
                may_run_s = 0.0 if ended.why == "rebooted" else OUTLIVES_S
                return TransportFailed(attempt, f"{job.link.device.id}: the run was {ended.state}{why}", may_run_s)
            fetching = job.fetch(client, attempt.n)
            raw = await (fetching if job.is_measured else loss.while_wanted(fetching))
            with suppress(TransportError):  # the result is here; its clock is as good as the reading before it
                await job.link.clock.after_run(client)
        job.arrived(attempt.n, raw, utc_now())
        return ResultArrived(attempt, evidence_of(raw, job))

    async def kill(self, instruction: Kill) -> Event:
        # not by way of the job: what is killed may be a left-over of a work that is over or unknown here
        attempt = instruction.attempt
        if (loss := self._losses.get(attempt)) is not None:
            loss.give_up()
        async with self._links[instruction.device].client() as client:
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
        async with self._links[instruction.device].client() as client:
            await client.ack(run_id_of(attempt.work_id), attempt.n)
        return Acked(instruction.attempt)

    async def probe(self, instruction: Probe) -> Event:
        link = self._links[instruction.device]
        if instruction.call:
            with suppress(ConfigError):  # what is missing on this machine each point says itself (class `config`)
                async with link.client():  # connected is all that is asked
                    pass
        else:
            await link.probe()
        return ProbeAnswered(instruction.device, True)

    async def move(self, instruction: Move) -> Event:
        return await moves.carry_out(instruction, self._jobs)

    # -- the controller

    def parse(self, instruction: Parse) -> Answer:
        job = self._jobs[instruction.attempt.work_id]
        if _is_big(job.raw):
            return self._parse(instruction, job)
        return Parsed(instruction.attempt, job.parse())

    async def _parse(self, instruction: Parse, job: Job) -> Event:
        return Parsed(instruction.attempt, await asyncio.to_thread(job.parse))

    def publish(self, instruction: Publish) -> Answer:
        self._jobs[instruction.work_id].publish(instruction.failure, utc_now())
        return Published(instruction.work_id)


async def _within(limit_s: float, link: DeviceLink) -> None:
    """Connected, or ``TransportError`` with what it waits for."""
    try:
        async with asyncio.timeout(limit_s), link.client():
            pass
    except TimeoutError:
        why = f": {link.waiting.last}" if link.waiting.last else ""
        raise TransportError(f"device {link.device.id!r}: not had within {limit_s:.0f} s{why}") from None


def run_id_of(work_id: str) -> str:
    """The name by which the device knows a work: without the number of the lab in front."""
    return work_id.partition(":")[2]


def _is_big(raw: RawResult | None) -> bool:
    return raw is not None and len(raw.stdout.head) + len(raw.stdout.tail) > PARSE_INLINE_BYTES
