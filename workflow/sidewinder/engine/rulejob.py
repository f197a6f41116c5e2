"""A rule job: a user's own rule that says ``device=``; its formatted shell runs as one command on that device.

On a local device it runs in place, in the workflow's working directory, and its declared outputs must exist when it
has ended well. It is nobody's point: no record, no journal, and after a crash Snakemake runs the rule again. Its name
on the device is fresh each time, so that an earlier run is never taken for this one.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import Any

from sidewinder.core.events import Work
from sidewinder.errors import DeviceFault
from sidewinder.model import Failure, FailureClass, RawResult, Task

from .callbacks import Key
from .pointjob import with_environment
from .session import Session
from .shard import Shard
from .staging import Tell

SHELL = ("bash", "-euo", "pipefail", "-c")
_STDERR_LINES = 20


def shell_task(command: str, *, cwd: str, timeout_s: float = 7 * 86400.0) -> Task:
    """The task of a rule's formatted shell command, run the way Snakemake runs it."""
    return Task(argv=(*SHELL, command), cwd=cwd, timeout_s=timeout_s)


class RuleJob:
    inline = False
    is_measured = False
    brings = False
    moved_from: str | None = None

    def __init__(self, session: Session, device: str, key: Key, task: Task, outputs: tuple[str, ...]) -> None:
        self.session, self.key = session, key
        self.run_id = f"rule-{uuid.uuid4().hex[:12]}"
        self.link = session.links[device]
        self.raw: RawResult | None = None
        self._task, self._outputs = task, outputs
        self._started = False
        self.shard: Shard | None = None

    def work(self, priority: int = 0) -> Work:
        return Work(self.session.work_id(self.run_id), self.session.device_key(self.link.device.id), priority=priority)

    @property
    def is_running(self) -> bool:
        return self._started and self.raw is None

    def claim(self, n: int) -> dict[str, Any] | None:
        return None

    def ended(self, outcome: str) -> dict[str, Any] | None:
        return None

    async def bring(self, tell: Tell) -> None:
        """Nothing."""

    async def prepare(self) -> None:
        if self.link.device.kind != "local":
            raise DeviceFault(
                f"{self.link.device.id}: a rule with device= cannot run on a {self.link.device.kind} device yet, its "
                "inputs would have to be brought there; run it on a local device, or without device="
            )

    def build(self) -> Task:
        task = with_environment(self._task, self.link.device)
        return replace(task, cwd=task.cwd or os.getcwd())

    def starting(self, n: int, at_utc: str) -> None:
        self._started = True
        self.link.last_run = str(self.key)

    def adopted(self, n: int) -> None:
        self._started = True

    def attempt_failed(self, n: int, failure: Failure, at_utc: str) -> None:
        """The core counts; there is no record that would tell."""

    def arrived(self, n: int, raw: RawResult, at_utc: str) -> None:
        self.raw = raw

    def parse(self) -> Failure | None:
        raw = self.raw
        if raw is None or raw.returncode != 0:
            code = "no exit status" if raw is None else f"exit status {raw.returncode}"
            return Failure(FailureClass.MEASUREMENT, f"{code} on {self.link.device.id}{self._last_lines()}")
        folder = self.build().cwd or ""
        missing = [path for path in self._outputs if not os.path.lexists(os.path.join(folder, path))]
        if missing:
            return Failure(
                FailureClass.MEASUREMENT, f"the command ended well but did not write {', '.join(missing[:5])}"
            )
        return None

    def _last_lines(self) -> str:
        if self.raw is None:
            return ""
        text = (self.raw.stderr.tail or self.raw.stderr.head).decode("utf-8", "replace").rstrip()
        lines = text.splitlines()[-_STDERR_LINES:]
        return ":\n" + "\n".join(lines) if lines else ""

    def publish(self, failure: Failure | None, at_utc: str) -> None:
        """Nothing: the rule's outputs are its result, and Snakemake keeps the books of them."""

    def warn(self, text: str) -> None:
        """No record, no place for it."""

    def describe(self) -> dict[str, Any]:
        told: dict[str, Any] = {"label": str(self.key)}
        if self.raw is not None and self.raw.duration_s is not None:
            told["duration_s"] = self.raw.duration_s
        return told
