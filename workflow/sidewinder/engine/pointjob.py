"""A point job: one point of a plan on its way from a task to a record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sidewinder.errors import ConfigError, DeviceFault, ParseError, PublishError, SidewinderError, TransportError
from sidewinder.files import journal, records
from sidewinder.files import raw as raw_files
from sidewinder.model import (
    EMPTY,
    AttemptId,
    Device,
    Failure,
    FailureClass,
    Found,
    Json,
    Measurement,
    Output,
    Point,
    RawResult,
    Task,
)
from sidewinder.workloads import registry
from sidewinder.workloads.base import Workload

from . import staging
from .callbacks import Key
from .clock import utc_now, utc_of
from .devices import path_on
from .evidence import interruption_of, limits_of, out_of_memory
from .session import Session
from .shard import Shard
from .staging import Parcel

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient

_NO_ATTEMPTS: Final[dict[int, dict[str, Json]]] = {}  # of all that wait: tens of thousands in a big sweep
_NO_FOUND: Final = Found()
_NO_OUTPUT: Final = Output(b"", b"", 0)
_NO_RAW: Final = RawResult("done", 0, None, _NO_OUTPUT, _NO_OUTPUT)  # of a point that ends in the engine


def _as_seen_on(device: Device, point: Point, parcels: tuple[Parcel, ...]) -> Point:
    """With the model's path as the device has it. The record and the identity keep it as it was written: the same lab
    in another folder is the same measurement."""
    for parcel in parcels:
        if parcel.file == point.model_path:
            return replace(point, model_path=parcel.path, model_sha256=parcel.sha256)
    if point.model_path is None or path_on(device, point.model_path) == point.model_path:
        return point
    return replace(point, model_path=path_on(device, point.model_path))


def _started_from_here(device: Device, task: Task) -> Task:
    """The same for a program: ``./bench.sh`` is the one that lies where the person stands."""
    program = task.argv[0] if task.argv else ""
    if task.cwd is not None or "/" not in program:
        return task
    return replace(task, argv=(path_on(device, program), *task.argv[1:]))


class PointJob:
    is_measured = True
    __slots__ = (
        "_attempts",
        "_boot",
        "_found",
        "_label",
        "_measurement",
        "_parcels",
        "_task",
        "_unprepared",
        "_wanted",
        "_warnings",
        "inline",
        "key",
        "link",
        "moved_from",
        "outcome_kept",
        "point",
        "predecessor",
        "raw",
        "run_id",
        "session",
        "shard",
        "workload",
    )

    def __init__(self, session: Session, run_id: str, key: Key) -> None:
        self.session, self.run_id, self.key = session, run_id, key
        self.point = session.point(run_id)
        self.link = session.links[self.point.device]
        self.workload: Workload = registry.get(self.point.backend)
        self.inline = bool(getattr(self.workload, "inline", False))
        self.raw: RawResult | None = None
        self.predecessor: str | None = None
        self.shard: Shard | None = None
        self.moved_from: str | None = None  # the device that this copy was planned for
        self.outcome_kept = False
        self._task: Task | None = None
        self._found: Found | None = None
        self._wanted = () if self.inline else staging.wanted_by(session.plan.lab, self.point, self.link.device)
        self._parcels: tuple[Parcel, ...] = ()
        self._label: str | None = None
        self._unprepared: ConfigError | None = None
        self._measurement: Measurement | None = None
        self._attempts = _NO_ATTEMPTS
        self._boot: str | None = None
        self._warnings: tuple[str, ...] = ()

    # -- journal

    def claim(self, n: int) -> dict[str, Any] | None:
        if self.inline:
            return None
        self._boot = self.link.boot_of(self.run_id, n)
        known = {} if self._boot is None else {"boot": self._boot}
        return journal.claimed(AttemptId(self.run_id, n), self.point.device, utc_now(), **known)

    def ended(self, outcome: str) -> dict[str, Any] | None:
        if self.inline or not self._attempts:
            return None
        if outcome not in ("ok", "failed"):
            # It may run, or its result may lie there: the controller's disk was full, or the run ended by itself just
            # before it was killed (the simulation found that). The next controller asks, and takes over instead of
            # measuring again.
            return None
        return journal.ended(AttemptId(self.run_id, max(self._attempts)), self.point.device, outcome, utc_now())

    # -- the run

    async def prepare(self) -> None:
        if self.inline or self._found is not None or self._unprepared is not None:
            return
        try:
            found = await self.link.found(self.workload)
            if self._wanted:
                self._parcels = tuple([await staging.pack(self.link, wanted) for wanted in self._wanted])
            self._found = found
        except (TransportError, DeviceFault):
            raise
        except ConfigError as error:
            self._unprepared = error
        except Exception as error:  # noqa: BLE001 -- a plug-in's bug is `config` here (docs/design.md §3), not ours
            backend = self.point.backend
            self._unprepared = ConfigError(f"backend {backend} could not look for its engine: {_said(error)}")

    @property
    def brings(self) -> bool:
        return bool(self._wanted)

    async def bring(self, tell: staging.Tell) -> None:
        for parcel in self._parcels:
            await staging.bring(self.link, parcel, tell)

    def build(self) -> Task:
        if self._unprepared is not None:
            raise self._unprepared
        if self._task is None:
            device = self.link.device
            try:
                point = _as_seen_on(device, self.point, self._parcels)
                task = self.workload.build_task(point, device, self._found or _NO_FOUND)
            except SidewinderError:
                raise
            except Exception as error:
                # docs/design.md §3: our own code could not build the task, without the device: that is `config`
                raise ConfigError(f"backend {self.point.backend} could not build the task: {_said(error)}") from error
            if not self.inline:
                task = with_environment(_started_from_here(device, task), device)
                task = staging.with_files(task, self.point, device, self._parcels)
                task = replace(task, idle_gate=device.idle_gate) if device.idle_gate else task
            self._task = task
        return self._task

    async def fetch(self, client: AgentClient, n: int) -> RawResult:
        return await client.fetch(self.run_id, n)

    @property
    def is_running(self) -> bool:
        return bool(self._attempts) and self.raw is None

    def starting(self, n: int, at_utc: str) -> None:
        if n not in self._attempts:
            self._attempt(n)["start_utc"] = at_utc
        if self.predecessor is None and self.link.last_run != self.run_id:
            self.predecessor = self.link.last_run
        self.link.last_run = self.run_id

    def _attempt(self, n: int) -> dict[str, Json]:
        """What the record will say of attempt ``n``."""
        if self._attempts is _NO_ATTEMPTS:
            self._attempts = {}
        return self._attempts.setdefault(n, {"n": n})

    def begins(self, n: int, boot: str | None) -> None:
        if boot is None or boot == self._boot:
            return
        self._boot = boot
        line = journal.boot(AttemptId(self.run_id, n), self.point.device, boot, utc_now())
        with suppress(PublishError):  # a full disk is told of with the next claim; the run goes on
            self.session.journal.append(line, sync=False)  # lost: the next controller starts it under its old number

    def adopted(self, n: int) -> None:
        self._attempt(n)
        self.link.last_run = self.run_id

    def attempt_failed(self, n: int, failure: Failure, at_utc: str) -> None:
        entry = self._attempt(n)
        entry.update(end_utc=at_utc, outcome="lost", error=failure.message)
        entry["class"] = failure.failure_class.value
        if failure.evidence:  # how it died, and what proves that it did
            entry["evidence"] = dict(failure.evidence)
        elif self.raw is not None and (figures := interruption_of(self.raw)):
            entry["evidence"] = figures
        self.raw = None  # what a lost attempt printed is not this point's output

    def arrived(self, n: int, raw: RawResult, at_utc: str) -> None:
        self.raw = raw
        entry = self._attempt(n)
        for key in ("class", "error"):  # the link was lost meanwhile, the run was not
            entry.pop(key, None)
        started = (raw.evidence.get("stamps") or EMPTY).get("start") or EMPTY
        if "start_utc" not in entry and "wall_ns" in started:  # adopted: only the device saw it start, by its clock
            entry["start_utc"] = utc_of(started["wall_ns"])
        entry.update(end_utc=at_utc, outcome=raw.state)

    def parse(self) -> Failure | None:
        """Exit code 0 with an OOM kill behind it is a wrapper that hid it (B24): then no output is no mystery."""
        task, raw = self.build(), self.raw or _NO_RAW
        try:
            measurement = self.workload.parse(self.point, task, raw)
        except ParseError as error:
            if raw.oom_kills:
                return Failure(FailureClass.MEMORY, f"{out_of_memory(raw)}. Its output cannot be read: {error}")
            raise
        except Exception as error:
            # a parser is foreign code: what it raises is class `parse`, and the raw output is kept
            raise ParseError(f"the parser of backend {self.point.backend} broke: {_said(error)}") from error
        self._measurement = measurement
        if measurement.ok:
            if raw.oom_kills:
                self.warn(f"the run ended well all the same: {out_of_memory(raw)}")
            return None
        why = measurement.message or "the output breaks one of the workload's rules"
        if raw.oom_kills and measurement.failure_class is FailureClass.MEASUREMENT:
            return Failure(FailureClass.MEMORY, f"{out_of_memory(raw)}. {why}")
        return Failure(measurement.failure_class, why)

    # -- the end

    def publish(self, failure: Failure | None, at_utc: str) -> None:
        session, point = self.session, self.point
        stored: Mapping[str, Json] = EMPTY
        if self._attempts:
            last = self._attempts[max(self._attempts)]
            died_of_it = failure is not None and failure.failure_class.value == last.get("class")
            if self.raw is not None or self.inline or died_of_it:
                last.setdefault("end_utc", at_utc)
                last["outcome"] = "failed" if failure else "ok"
            if failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED:
                last["outcome"] = "lost"
                last.setdefault("class", failure.evidence.get("cause"))
                last.setdefault("error", failure.evidence.get("reason"))
                if (
                    self.raw is not None
                    and last["class"] == FailureClass.DEVICE.value
                    and (seen := limits_of(self.raw))
                ):
                    last.setdefault("evidence", seen)
        if self.raw is not None:
            stored = raw_files.store(
                session.root, point.device, self.run_id, self.raw, n=max(self._attempts, default=1)
            )
        record = self._record(failure, stored, at_utc)
        if self.inline:
            session.pending[self.run_id] = (point.device, self.run_id, record)
            return
        outcome = records.publish(session.root, point.device, self.run_id, record)
        self.outcome_kept = outcome == "kept_ok"

    def _record(self, failure: Failure | None, stored: Mapping[str, Json], at_utc: str) -> dict[str, Any]:
        session, point = self.session, self.point
        known: dict[str, Any] = {
            "campaign": session.plan.campaign,
            "versions": session.versions,
            "identity": session.identity_of(point),
            "order": session.order_of(self.run_id, self.predecessor),
            "attempts": [self._attempts[n] for n in sorted(self._attempts)],
            "staged": [parcel.record() for parcel in self._parcels],
            "clock": self.link.clock.over_run(self.raw.duration_s if self.raw is not None else None),
            "warnings": self._warnings,
            "timestamp_utc": at_utc,
        }
        if failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED:
            reason = str(failure.evidence.get("reason") or failure.message)
            known["moved_to"] = failure.evidence.get("moved_to")
            return records.hole(
                point, self.link.device, reason=reason, message=failure.message, evidence=failure.evidence, **known
            )
        return records.build(
            point,
            self.link.device,
            raw=self.raw,
            stored=stored,
            measurement=self._measurement,
            failure=failure,
            found=self._found,
            **known,
        )

    def warn(self, text: str) -> None:
        self._warnings = (*self._warnings, text)

    def describe(self) -> dict[str, Any]:
        if self._label is None:
            self._label = self.session.label(self.point)
        told: dict[str, Any] = {"label": self._label}
        if self._measurement is not None:
            told["headline"] = self.workload.headline(self._measurement.metrics)
        if self.raw is not None and self.raw.duration_s is not None:
            told["duration_s"] = max(0.0, self.raw.duration_s)
        return told


def with_environment(task: Task, device: Device) -> Task:
    """The task with the device's declared environment under its own, and with the values of declared secrets.

    A secret's value comes from the controller's environment now and is written nowhere.
    """
    if not device.env and not device.secrets:
        return task
    secrets = {}
    for name in device.secrets:
        if name not in os.environ:
            raise ConfigError(
                "this secret is not in the controller's environment", key=f"devices.{device.id}.secrets", value=name
            )
        secrets[name] = os.environ[name]
    return replace(task, env={**device.env, **task.env, **secrets})


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
