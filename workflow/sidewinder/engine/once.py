"""Once: the engine for a few points in this very thread, by ``asyncio.run`` (``sidewinder measure``)."""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from sidewinder.model import AttemptId, Failure, Plan

from .callbacks import Key
from .reactor import Reactor
from .session import Session

# Siblings that Snakemake's own executor started wait for the same device's slot in line, however long the line is.
BUSY_WAIT_S = 7 * 86400.0


class Outcome(NamedTuple):
    """How one point ended: "ok", "failed", "hole", "cancelled"; ``failure`` says why."""

    outcome: str
    failure: Failure | None = None


class _Collector:
    """Callbacks that keep the outcomes and pass events on."""

    def __init__(self, on_event: Callable[[Mapping[str, Any]], None] | None) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.manifests: set[Key] = set()
        self._on_event = on_event

    def on_started(self, key: Key, attempt: AttemptId) -> None:
        pass

    def on_done(self, key: Key, outcome: str, failure: Failure | None) -> None:
        if isinstance(key, str):
            self.outcomes[key] = Outcome(outcome, failure)
        else:
            self.manifests.add(key)

    def on_event(self, event: Mapping[str, Any]) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def on_crash(self, error: BaseException) -> None:
        pass  # `wait_idle` raises it


def run_points(
    folder: str,
    plan: Plan,
    run_ids: Iterable[str],
    *,
    forced: Iterable[str] = (),
    on_event: Callable[[Mapping[str, Any]], None] | None = None,
    shared_lock: bool = True,
) -> dict[str, Outcome]:
    """Measure these points and return how each ended. Ctrl-C and SIGTERM stop what runs and prove it dead first.

    Raises ``LockHeld``, ``PublishError``, ``ConfigError`` (unknown run id); a bug of ours comes out as it is.
    """
    return asyncio.run(_run_points(folder, plan, list(run_ids), frozenset(forced), on_event, shared_lock))


async def _run_points(
    folder: str,
    plan: Plan,
    run_ids: list[str],
    forced: frozenset[str],
    on_event: Callable[[Mapping[str, Any]], None] | None,
    shared_lock: bool,
) -> dict[str, Outcome]:
    policy = replace(plan.lab.policy, busy_wait_s=max(plan.lab.policy.busy_wait_s, BUSY_WAIT_S))
    plan = replace(plan, lab=replace(plan.lab, policy=policy))
    callbacks = _Collector(on_event)
    # A name of its own: siblings that measure at the same time must not take each other for their own dead past.
    client_id = f"measure-{uuid.uuid4()}"
    session = Session(0, folder, plan, forced=forced, client_id=client_id, shared_lock=shared_lock)
    reactor = Reactor(callbacks, tell_plan=False)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(RuntimeError, ValueError):  # not in the main thread: the caller's own business then
            loop.add_signal_handler(number, reactor.cancel, False)
    try:
        reactor.add(session)
        reactor.submit(session, [(run_id, run_id) for run_id in run_ids])
        if not await reactor.wait_idle() and reactor.error is not None:
            raise reactor.error
    finally:
        await reactor.close()
    return callbacks.outcomes
