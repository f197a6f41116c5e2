"""A rule job: a user's own rule that says ``device=``; its formatted shell runs as one command on that device.

On a local device it runs in place, in the workflow's working directory. On any other it runs in a fresh folder there,
with its inputs beside it under the names that the command uses, and its outputs are brought home. It is nobody's point:
no record, no journal, and after a crash Snakemake runs the rule again. Its name on the device is fresh each time, so
that an earlier run is never taken for this one.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sidewinder.core.events import Work
from sidewinder.files.arrival import Arrival
from sidewinder.model import Failure, FailureClass, Json, RawResult, Task

from .appearing import appear
from .callbacks import Key
from .pointjob import with_environment
from .rulefiles import Packed, RuleFiles, bring_all, pack
from .session import Session
from .shard import Shard
from .staging import Tell

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient

SHELL = ("bash", "-euo", "pipefail", "-c")
KEPT_S = 86_400.0  # a result that nobody comes for: no later controller will, as the run's name was this one's alone
_STDERR_LINES = 20


def shell_task(command: str, *, cwd: str | None, timeout_s: float = 7 * 86400.0) -> Task:
    """The task of a rule's formatted shell command, run the way Snakemake runs it."""
    return Task(argv=(*SHELL, command), cwd=cwd, timeout_s=timeout_s)


class RuleJob:
    inline = False
    is_measured = False
    moved_from: str | None = None

    def __init__(self, session: Session, device: str, key: Key, task: Task, files: RuleFiles) -> None:
        self.session, self.key = session, key
        self.run_id = f"rule-{uuid.uuid4().hex[:12]}"
        self.link = session.links[device]
        self.raw: RawResult | None = None
        self.shard: Shard | None = None
        self._task, self._files = task, files
        self._started = False
        self._packed: Packed | None = None
        self._trouble: str | None = None  # why outputs are not here, though the command ended well
        where = f"{self.run_id} on {self.link.device.id}"
        self._arrival = Arrival(files.workdir, files.outputs, files.logs, where=where)

    @property
    def _is_here(self) -> bool:
        return self.link.device.kind == "local"

    def work(self, priority: int = 0) -> Work:
        return Work(self.session.work_id(self.run_id), self.session.device_key(self.link.device.id), priority=priority)

    @property
    def is_running(self) -> bool:
        return self._started and self.raw is None

    def claim(self, n: int) -> dict[str, Any] | None:
        return None

    def ended(self, outcome: str) -> dict[str, Any] | None:
        self._arrival.discard()
        return None

    async def prepare(self) -> None:
        """Before each attempt: an input may have been made anew."""
        if not self._is_here and not self._started and self._packed is None:
            self._packed = await pack(self.link, self._files)

    @property
    def brings(self) -> bool:
        return bool(self._files.inputs) and not self._is_here

    async def bring(self, tell: Tell) -> None:
        if self._packed is not None:
            await bring_all(self.link, self._packed, tell)

    def build(self) -> Task:
        task = with_environment(self._task, self.link.device)
        if self._is_here:
            return replace(task, cwd=task.cwd or self._files.workdir)
        packed = self._packed or Packed()
        return replace(
            task,
            cwd=None,
            inputs=packed.inputs,
            folders=packed.folders,
            outputs=self._files.outputs,
            logs=self._files.logs,
            keep_result_s=KEPT_S,
        )

    def starting(self, n: int, at_utc: str) -> None:
        self._started = True
        self.link.last_run = str(self.key)

    def begins(self, n: int, boot: str | None) -> None:
        """No journal: no later controller asks for it."""

    def adopted(self, n: int) -> None:
        self._started = True

    def attempt_failed(self, n: int, failure: Failure, at_utc: str) -> None:
        """There is no record that would tell; the inputs are looked at again before the next one."""
        self._started, self._packed = False, None

    # -- the way home

    async def fetch(self, client: AgentClient, n: int) -> RawResult:
        raw = await client.fetch(self.run_id, n)
        self._trouble = None
        ended_well = raw.state == "done" and raw.returncode == 0
        if self._is_here:
            if ended_well:
                late = await appear(self._files.workdir, self._files.outputs, self._files.latency_wait_s)
                self._trouble = f"the command ended well but did not write {late}" if late is not None else None
            return raw
        try:
            await client.fetch_files(self.run_id, n, raw.files, _InThread(self._arrival))
            self._trouble = self._what_lacks(raw) if ended_well else None
            await asyncio.to_thread(self._arrival.place, outputs=ended_well and self._trouble is None)
        except OSError as error:
            self._trouble = (
                f"what it wrote on {self.link.device.id} could not be put in place on this machine: "
                f"{error.filename or self._files.workdir}: {error.strerror or error}"
            )
        return raw

    def _what_lacks(self, raw: RawResult) -> str | None:
        evidence: Mapping[str, Json] = raw.evidence
        failed: Mapping[str, str] = evidence.get("outputs_failed") or {}
        if failed:
            told = "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:5])
            return f"the command ended well but its output cannot be sent from {self.link.device.id}: {told}"
        missing: Sequence[str] = evidence.get("outputs_missing") or ()
        if missing:
            instead: Mapping[str, Sequence[str]] = evidence.get("outputs_instead") or {}
            names = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            seen = {os.path.dirname(name) or "its folder": instead.get(name) or () for name in missing}
            holds = "; ".join(f"{folder} held {', '.join(held) or 'nothing'}" for folder, held in seen.items())
            return f"the command ended well on {self.link.device.id} but did not write {names}; {holds}"
        return None

    def arrived(self, n: int, raw: RawResult, at_utc: str) -> None:
        self.raw = raw

    def parse(self) -> Failure | None:
        raw, trouble = self.raw, self._trouble
        if raw is None or raw.returncode != 0:
            code = "no exit status" if raw is None else f"exit status {raw.returncode}"
            more = f"; {trouble}" if trouble else ""
            return Failure(FailureClass.MEASUREMENT, f"{code} on {self.link.device.id}{more}{self._last_lines()}")
        return Failure(FailureClass.MEASUREMENT, f"{trouble}{self._last_lines()}") if trouble else None

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


class _InThread:
    """An arrival as a fetch wants it: the disk does not hold the engine's loop up."""

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival

    async def expect(self, entries: Sequence[Mapping[str, Json]]) -> None:
        await asyncio.to_thread(self._arrival.expect, entries)

    def have(self, number: int) -> int:
        return self._arrival.have(number)

    async def take(self, number: int, data: bytes) -> None:
        await asyncio.to_thread(self._arrival.take, number, data)
