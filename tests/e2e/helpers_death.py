"""Death at a named moment: loaded by a lab's Snakefile, it ends the controller by SIGKILL when a step is reached.

``DIE_AT=step:occurrence:before|after``. The steps are the file operations that everything durable rests on, each
exchange with a device, what Snakemake hands over and is told, and the making of the report. Nothing is cleaned up,
as nothing would be.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

FILES = ("create", "open_append", "write", "fsync", "rename", "fsync_dir")
DEVICE = ("connect", "status", "start", "wait", "fetch", "ack")
SNAKEMAKE = ("run_jobs", "on_started", "on_done", "started", "finished")
REPORT = ("table", "build")
STEPS = (*FILES, *DEVICE, *SNAKEMAKE, *REPORT)


class Death:
    def __init__(self, text: str) -> None:
        self.step, occurrence, self.when = text.split(":")
        self._left = int(occurrence)
        self._lock = threading.Lock()

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*args: Any, **more: Any) -> Any:
                now = self._is_now()
                answer = await function(*args, **more)
                return self._die() if now else answer

            return waited

        @functools.wraps(function)
        def called(*args: Any, **more: Any) -> Any:
            now = self._is_now()
            answer = function(*args, **more)
            return self._die() if now else answer

        return called

    def _is_now(self) -> bool:
        """Whether this is the step that is to be the last one."""
        with self._lock:
            self._left -= 1
            if self._left != 0:
                return False
        return self._die() if self.when == "before" else True

    @staticmethod
    def _die() -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")


def arm() -> None:
    """Once, in the main process: what it starts must not inherit its death."""
    text = os.environ.pop("DIE_AT", "")
    if not text:
        return
    death = Death(text)
    owner = _owner(death.step)
    setattr(owner, death.step, death.wrap(getattr(owner, death.step)))


def _owner(step: str) -> Any:
    if step in FILES:
        from sidewinder.files.atomic import FileOps

        return FileOps
    if step in DEVICE:
        from sidewinder.transports.client import AgentClient

        return AgentClient
    if step in ("started", "finished"):
        from snakemake.persistence import PersistenceBase

        return PersistenceBase
    if step in SNAKEMAKE:
        from snakemake_executor_plugin_sidewinder import Executor

        return Executor
    from sidewinder import report

    return report
