"""Once: the engine for a few points in this very thread, by ``asyncio.run`` (``sidewinder measure``)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from sidewinder.errors import PublishError
from sidewinder.model import AttemptId, Failure, FailureClass, Plan

from .callbacks import Key
from .notices import Notices
from .reactor import Reactor
from .session import Session

# Siblings that Snakemake's own executor started wait for the same device's slot in line, however long the line is.
BUSY_WAIT_S = 7 * 86400.0
LINE_POLL_S = 0.05


class Outcome(NamedTuple):
    """How one point ended: "ok", "failed", "hole", "cancelled", or "unrecorded" (nobody stopped it: the controller's
    disk refused its record); ``failure`` says why."""

    outcome: str
    failure: Failure | None = None


class _Collector:
    """Callbacks that keep how each point ended and pass events on."""

    def __init__(self, on_event: Callable[[Mapping[str, Any]], None] | None) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._on_event = on_event

    def on_started(self, key: Key, attempt: AttemptId) -> None:
        """Displays are told by an event."""

    def on_done(self, key: Key, outcome: str, failure: Failure | None) -> None:
        self.outcomes[str(key)] = Outcome(outcome, failure)

    def on_event(self, event: Mapping[str, Any]) -> None:
        if event["kind"] == "finished" and event["key"] != event["run_id"]:  # a point of a shard
            failure = event.get("failure")
            self.outcomes[event["run_id"]] = Outcome(
                event["outcome"], Failure(FailureClass(failure["class"]), failure["message"]) if failure else None
            )
        if self._on_event is not None:
            self._on_event(event)

    def on_crash(self, error: BaseException) -> None:
        """``run_points`` raises it."""


def run_points(
    folder: str,
    plan: Plan,
    run_ids: Iterable[str],
    *,
    forced: Iterable[str] = (),
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    shard: str | None = None,
    shared_lock: bool = True,
) -> dict[str, Outcome]:
    """Measure these points and return how each ended. Ctrl-C and SIGTERM stop what runs and prove it dead first.

    Raises ``LockHeld``, ``PublishError``, ``ConfigError`` (unknown run id); a bug of ours comes out as it is.
    """
    waiting = _wait_longer(plan)
    return asyncio.run(_run_points(folder, waiting, list(run_ids), frozenset(forced), on_event, shard, shared_lock))


def _wait_longer(plan: Plan) -> Plan:
    policy = replace(plan.lab.policy, busy_wait_s=max(plan.lab.policy.busy_wait_s, BUSY_WAIT_S))
    return replace(plan, lab=replace(plan.lab, policy=policy))


async def _run_points(
    folder: str,
    plan: Plan,
    run_ids: list[str],
    forced: frozenset[str],
    on_event: Callable[[Mapping[str, Any]], None] | None,
    shard: str | None,
    shared_lock: bool,
) -> dict[str, Outcome]:
    callbacks = _Collector(on_event)
    # A name of its own: siblings that measure at the same time must not take each other for their own dead past.
    client_id = f"measure-{uuid.uuid4()}"
    announce = Notices(callbacks).warning
    session = Session(0, folder, plan, forced=forced, client_id=client_id, shared_lock=shared_lock, announce=announce)
    reactor = Reactor(callbacks, whole_sweep=False)
    stopped = asyncio.Event()

    def stop() -> None:
        stopped.set()
        reactor.cancel(False)

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(RuntimeError, ValueError):  # not in the main thread: the caller's own business then
            asyncio.get_running_loop().add_signal_handler(number, stop)
    with ExitStack() as lines:
        try:
            devices = {session.point(run_id).device for run_id in run_ids}
            stand_ins = {other for device in devices for other in session.links[device].device.failover_to}
            reactor.add(session, frozenset(devices | stand_ins))
            for device in devices:
                await _stand_in_line(lines, session, device, stopped)
            if shard is not None:
                reactor.submit_shard(session, shard, run_ids, f"shard {shard}")
            else:
                reactor.submit(session, [(run_id, run_id) for run_id in run_ids])
            if not await reactor.wait_idle() and reactor.error is not None:
                raise reactor.error
        finally:
            await reactor.close()
    if stopped.is_set():
        return callbacks.outcomes
    return {
        run_id: one._replace(outcome="unrecorded") if one.outcome == "cancelled" else one
        for run_id, one in callbacks.outcomes.items()
    }


async def _stand_in_line(lines: ExitStack, session: Session, device: str, stopped: asyncio.Event) -> None:
    """Wait for a place among the siblings on this controller. The device's own slot would tell them apart as well, but
    it is asked every few seconds only; and whoever dies leaves the line with its process."""
    places = session.plan.lab.devices[device].max_concurrency
    base = f"{session.lock.path}.{device}"
    files = [lines.enter_context(_opened(f"{base}.{place}")) for place in range(places)]
    while not stopped.is_set():
        for fd in files:
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), LINE_POLL_S)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise PublishError(f"could not open {path}: {error.strerror or error}") from error
    try:
        yield fd
    finally:
        os.close(fd)
