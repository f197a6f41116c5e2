"""The engine: one daemon thread with one asyncio loop, to which any thread hands work.

The thread starts with the first hand-over. Everything crosses by ``call_soon_threadsafe``; callbacks come from the
engine's thread. Whatever escapes the loop ends it through ``on_crash``: a silent dead thread would hang Snakemake.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sidewinder.errors import ConfigError, InternalError
from sidewinder.model import Plan, Task

from .callbacks import Callbacks, Key
from .notices import Notices
from .reactor import Reactor
from .rulefiles import RuleFiles
from .rulejob import RuleJob
from .session import Session

# Handing over looks at the record of every point (tens of µs): a hundred at a time, so that devices get their turn.
HANDOVER_POINTS = 100


class Engine:
    def __init__(self, callbacks: Callbacks, *, versions: Mapping[str, str] | None = None) -> None:
        self._callbacks = callbacks
        self._versions = versions
        self._sessions: dict[str, Session] = {}
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reactor: Reactor | None = None
        self._stop: asyncio.Event | None = None
        self._over = False
        self._clean = False
        self._stopping_in_s = 0.0

    # -- any thread

    def add_lab(self, folder: str, plan: Plan, forced: Iterable[str] = ()) -> None:
        """Take the run folder's lock and read its journal, here and now: ``LockHeld`` and ``PublishError`` are for the
        caller, before anything is handed over. It may wait, and says so by a warning, to see whether a controller on
        another host lives."""
        if folder in self._sessions:
            raise InternalError(f"the lab of {folder} was added twice")
        session = Session(
            len(self._sessions),
            folder,
            plan,
            forced=frozenset(forced),
            versions=self._versions,
            announce=Notices(self._callbacks).warning,
        )
        self._sessions[folder] = session
        if self._thread is not None:
            self._call(lambda reactor: reactor.add(session))

    def submit(self, points: Iterable[tuple[str, str]]) -> None:
        """Points as ``(root, run_id)``, which is also the key of their callbacks."""
        by_root: dict[str, list[tuple[Key, str]]] = defaultdict(list)
        for root, run_id in points:
            session = self._session(root)
            session.point(run_id)
            by_root[root].append(((root, run_id), run_id))
        for root, items in by_root.items():
            for start in range(0, len(items), HANDOVER_POINTS):
                chunk = items[start : start + HANDOVER_POINTS]
                self._call(partial(_submit, self._sessions[root], chunk))

    def submit_shard(self, root: str, shard: str, run_ids: Sequence[str], key: Key | None = None) -> None:
        """Points of one device that are reported together, under ``key`` (default: ``(root, shard)``), once the
        manifest of ``shard`` is on disk."""
        session = self._session(root)
        for run_id in run_ids:
            session.point(run_id)
        self._call(lambda reactor: reactor.submit_shard(session, shard, list(run_ids), key or (root, shard)))

    def submit_rule(self, key: Key, device: str, root: str, task: Task, files: RuleFiles, priority: int = 0) -> None:
        """A user's own rule with ``device=``: ``task`` runs there once, then its outputs must exist here."""
        session = self._session(root)
        if device not in session.links:
            known = ", ".join(session.links)
            raise ConfigError(f"no such device in this lab; known: {known}", key="resources.device", value=device)
        job = RuleJob(session, device, key, task, files)
        self._call(lambda reactor: reactor.submit_job(job.work(priority), job))

    def submit_exclusive(self, key: Key, run: Callable[[], Any], cores: int = 1) -> None:
        """An ordinary job of the controller. ``run`` blocks in a thread of its own; an exception or a ``Failure`` that
        it returns is the job's failure."""
        self._call(lambda reactor: reactor.submit_exclusive(key, run, cores))

    def cancel(self, drain: bool = False) -> None:
        """Take no new work. ``drain``: running attempts may end; else they are stopped and proven dead."""
        if self._thread is not None:
            self._call(lambda reactor: reactor.cancel(drain))

    def shutdown(self, timeout_s: float = 30.0) -> bool:
        """Wait until nothing is open, at most ``timeout_s``, then end the thread. False: something was left running on
        a device; it ends there by its lease, and the next controller asks for it."""
        thread = self._thread
        if thread is None or self._over:
            self._close_sessions()
            return True
        try:
            self._call(lambda _: self._begin_stop(timeout_s))
        except InternalError:
            pass  # it has ended meanwhile
        thread.join(timeout_s + 10.0)
        return self._clean and not thread.is_alive()

    # -- the engine's thread

    def _session(self, root: str) -> Session:
        try:
            return self._sessions[root]
        except KeyError:
            raise InternalError(f"no lab was added for the run folder {root}") from None

    def _call(self, what: Callable[[Reactor], None]) -> None:
        if self._over:
            raise InternalError("the engine has ended")
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name="sidewinder-engine", daemon=True)
            self._thread.start()
            self._ready.wait()
        loop, reactor = self._loop, self._reactor
        if loop is None or reactor is None:
            raise InternalError("the engine's thread could not start")
        try:
            loop.call_soon_threadsafe(self._guarded, reactor, what)
        except RuntimeError as error:
            raise InternalError("the engine has ended") from error

    @staticmethod
    def _guarded(reactor: Reactor, what: Callable[[Reactor], None]) -> None:
        if reactor.error is not None:
            return
        try:
            what(reactor)
        except BaseException as error:  # noqa: BLE001 -- a hand-over that breaks is a bug and must not be silent
            reactor.crash(error)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 -- the thread must not die in silence
            if self._reactor is None or self._reactor.error is None:
                self._callbacks.on_crash(error)
        finally:
            self._over = True
            self._ready.set()
            self._close_sessions()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._reactor = reactor = Reactor(self._callbacks)
        for session in self._sessions.values():
            reactor.add(session)
        self._ready.set()
        ends = [asyncio.ensure_future(event.wait()) for event in (self._stop, reactor.crashed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        try:
            async with asyncio.timeout(self._stopping_in_s):
                self._clean = await reactor.wait_idle()
        except TimeoutError:
            self._clean = False
        await reactor.close()

    def _begin_stop(self, timeout_s: float) -> None:
        self._stopping_in_s = timeout_s
        if self._stop is not None:
            self._stop.set()

    def _close_sessions(self) -> None:
        """Only what the loop did not close: labs that were added, or a loop that broke."""
        for session in self._sessions.values():
            session.release()


def _submit(session: Session, items: Sequence[tuple[Key, str]], reactor: Reactor) -> None:
    reactor.submit(session, items)
