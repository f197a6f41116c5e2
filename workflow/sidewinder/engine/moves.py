"""A move: the copy of a point that another device takes over, made once that device was looked at."""

from __future__ import annotations

from sidewinder.core.events import Event, Moved, MoveRefused
from sidewinder.core.instructions import Move
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.files.layout import RunFolder
from sidewinder.files.records import status_of

from .jobs import Job
from .pointjob import PointJob


async def carry_out(move: Move, jobs: dict[str, Job]) -> Event:
    """The copy's job is among ``jobs`` before the core hears of it."""
    job, to_device = jobs[move.work_id], move.to_device.partition(":")[2]
    session = job.session
    if not isinstance(job, PointJob):
        return MoveRefused(move.work_id, move.to_device, "a rule with device= runs on the device that it names")
    try:
        copy = session.moved_copy(job.run_id, to_device)
        await session.links[to_device].vouch()
    except (TransportError, DeviceFault, ConfigError) as error:
        return MoveRefused(move.work_id, move.to_device, str(error))
    lies_there = status_of(RunFolder(session.root).record(to_device, copy.run_id), copy.run_id)
    if lies_there == "ok" and job.run_id not in session.forced:
        return Moved(move.work_id, move.to_device, copy.run_id, None)
    work = session.work(copy.run_id)
    if work.work_id in jobs:
        return MoveRefused(move.work_id, move.to_device, "the same copy is under way there already")
    moved = PointJob(session, copy.run_id, copy.run_id)
    moved.moved_from = job.point.device
    moved.warn(f"measured on {to_device} instead of {job.point.device} ({move.reason})")
    jobs[work.work_id] = moved
    return Moved(move.work_id, move.to_device, copy.run_id, work)
