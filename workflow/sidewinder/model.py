"""The model: the frozen values that every room of the program speaks in.

Nothing here does I/O or decides anything. Times ending in ``_s`` are seconds, sizes ending in ``_bytes`` are bytes,
``*_ns`` are nanoseconds. A value that could not be had is ``None`` here and an absent key on disk, never zero.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn

Json = Any


class _Empty(dict[str, Any]):
    """The one empty mapping that all points share: a dict for JSON, hashable for dataclass defaults, never filled."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return 0

    def __setitem__(self, key: str, value: Any) -> NoReturn:
        raise TypeError("the shared empty mapping cannot be changed")


EMPTY: Final[Mapping[str, Any]] = _Empty()

#: How long a run goes on after its device last heard of us, at most: the lease (60 s) and the grace of its end (5 s).
OUTLIVES_S: Final = 65.0


class FailureClass(enum.StrEnum):
    """Who is at fault (docs/design.md §3). One table, ``core/policy.py``, says what each one does."""

    TRANSPORT = "transport"
    PREEMPTED = "preempted"
    MEMORY = "memory"
    MEASUREMENT = "measurement"
    PARSE = "parse"
    CONFIG = "config"
    DEVICE = "device"
    CANCELLED = "cancelled"
    INTERNAL = "internal"
    NOT_ATTEMPTED = "not_attempted"  # a hole: nothing was ever measured


class AttemptId(NamedTuple):
    """One try at one piece of work: ``n`` starts at 1 and only grows. An event of an older attempt is dropped."""

    work_id: str
    n: int

    def __str__(self) -> str:
        return f"{self.work_id}#{self.n}"


@dataclass(frozen=True, slots=True)
class Device:
    """One machine (or slot of a machine, or pod) that measurements are pinned to. The device is the variable."""

    id: str
    kind: str  # "local" | "ssh" | "kubernetes"
    max_concurrency: int = 1
    max_transport_failures: int = 3
    recovery_after_s: float = 180.0
    give_up_after_s: float | None = None  # None: never
    failover_to: tuple[str, ...] = ()
    resource_group: str | None = None
    group_max_concurrency: int | None = None
    python: str | None = None  # interpreter for the agent; None: the transport's default
    env: Mapping[str, str] = EMPTY  # declared environment of every run on this device (changes the identity)
    secrets: tuple[str, ...] = ()  # names taken from the controller's environment, values never written down
    dram_peak_GBs: float | None = None
    dram_measured_GBs: float | None = None
    accelerator: str | None = None
    idle_gate: Mapping[str, float] = EMPTY  # what each of its points waits for (`Task.idle_gate`); not in the identity
    lock: str = "slot"  # name of the slot lock on the device; two devices of one host need two names
    settings: Mapping[str, Json] = EMPTY  # the transport's keys (host, user, image, ...)
    backends: Mapping[str, Mapping[str, Json]] = EMPTY  # one block per backend: llamacpp: {bin_dir: ...}


@dataclass(frozen=True, slots=True)
class Model:
    """A file that is measured with: a path for every device, or one path per device."""

    id: str
    path: str | None = None
    paths: Mapping[str, str] = EMPTY
    stage: str | None = None
    sha256: str | None = None
    quantization: str | None = None
    tags: tuple[str, ...] = ()
    batch_size: int | None = None
    input_shape: Json = None
    params: Json = None

    def path_on(self, device: str) -> str | None:
        """Where the file lies for this device, or what is staged to it; None: the device does not have it."""
        return self.paths.get(device) or self.path or self.stage


# The fields of a point that say what was computed, and those that say how: identity, records and placeholders of
# commands are made of the same ones.
WORKLOAD_AXES: Final = ("quantization", "prompt_tokens", "output_tokens", "context_tokens", "batch_size")
KNOB_AXES: Final = (
    "threads",
    "governor",
    "freq_khz",
    "repetitions",
    "warmup",
    "flash_attention",
    "kv_quantization",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One planned measurement on exactly one device (mlsys' RunSpec, reference-systems M-14)."""

    run_id: str
    experiment: str
    device: str
    backend: str
    mode: str
    model: str | None = None
    model_path: str | None = None
    model_sha256: str | None = None
    quantization: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    context_tokens: int | None = None
    batch_size: int | None = None
    threads: int | None = None
    governor: str | None = None
    freq_khz: int | None = None
    repetitions: int | None = None
    warmup: int | None = None
    flash_attention: Json = None
    kv_quantization: str | None = None
    sample_power: bool = False
    sample_hz: float | None = None
    priority: int = 0
    prepare: Mapping[str, Json] = EMPTY
    parameters: Mapping[str, Json] = EMPTY  # free axes of a block (`parameters: {lr: [0.1, 0.2]}`)
    extra: Mapping[str, Json] = EMPTY
    command: tuple[str, ...] = ()  # backend `command`: argv with {axis} and {parameter} placeholders
    metrics: Json = None  # backend `command`: {name: regex}, or "json"
    stage: tuple[str, ...] = ()  # files of the controller: an argument that is equal to one is its path on the device
    tags: tuple[str, ...] = ()
    failover_from: str | None = None


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a transport failure is tried again (M-114). ``jitter`` is a share of the delay."""

    max_attempts: int = 3
    backoff_s: float = 5.0
    backoff_factor: float = 2.0
    max_backoff_s: float = 120.0
    jitter: float = 0.25


@dataclass(frozen=True, slots=True)
class Policy:
    """What the lab decided about order, retries and how a sweep may end."""

    retry: RetryPolicy = RetryPolicy()
    order_by: str = "interleaved"  # or "config"
    order_seed: int = 0
    busy_wait_s: float = 600.0
    allow_holes: bool = False
    points_per_job: int = 1
    controller_shares_local: bool = False


@dataclass(frozen=True, slots=True)
class Lab:
    """Everything a config says, checked: devices, models, policy and where results go."""

    experiment: str
    output_dir: str
    devices: Mapping[str, Device]
    models: Mapping[str, Model] = EMPTY
    policy: Policy = Policy()
    accept: Mapping[str, str] = EMPTY  # run id -> reason: a failure one has decided to live with


@dataclass(frozen=True, slots=True)
class Plan:
    """What was asked: every point of a lab, in config order. ``selected`` narrows it without changing any run id."""

    lab: Lab
    points: Mapping[str, Point]  # by run id, in config order
    campaign: str = ""  # a uuid, made once per run folder
    selected: frozenset[str] | None = None  # None: all
    warnings: tuple[str, ...] = ()

    def is_selected(self, run_id: str) -> bool:
        return self.selected is None or run_id in self.selected


# ---------------------------------------------------------------------------------------------------------------------
# What a workload asks of a device, and what comes back


class FileCheck(NamedTuple):
    """A file that must lie on the device before the run starts; with ``sha256`` its content is verified too."""

    path: str
    sha256: str | None = None
    what: str = "file"  # how a message names it: "model smol-q4"


class StagedInput(NamedTuple):
    """A file that lies in the device's store and is laid into the run's fresh folder before the command starts."""

    path: str  # below the fresh folder
    source: str  # where it lies on the device
    sha256: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One process to run and measure on a device: an argv without a shell, its data on stdin."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = EMPTY
    cwd: str | None = None  # None: a fresh empty folder on the device, removed afterwards
    stdin: bytes = b""
    timeout_s: float = 3600.0
    grace_s: float = 5.0
    output_cap_bytes: int = 262_144  # kept per stream: half head, half tail; the rest is counted
    checks: tuple[FileCheck, ...] = ()
    prepare: Mapping[str, Json] = EMPTY  # M-17 keys; steps that an axis needs are in `require`
    require: tuple[str, ...] = ()  # prepare steps that must succeed ("governor", "freq_khz"), else the run is refused
    sample_hz: float | None = None  # None: no telemetry
    sample_power: bool = False
    idle_gate: Mapping[str, float] = EMPTY  # `max_busy_share`, `window_s`, `wait_s`; empty: start at once
    inputs: tuple[StagedInput, ...] = ()  # only in a fresh folder, as `folders` (a user's own rule)
    folders: tuple[str, ...] = ()  # made in it before the command starts
    outputs: tuple[str, ...] = ()  # files and folders below cwd to bring home when the command ended with 0
    logs: tuple[str, ...] = ()  # files below cwd to bring home however it ended, where they are
    keep_result_s: float | None = None  # how long the device keeps a result that nobody fetches; None: a month
    inline: Mapping[str, Json] | None = None  # no process at all: the measurement itself (workload `noop`)
    notes: Mapping[str, Json] = (
        EMPTY  # for the workload's own `parse` (version, declared bandwidth); stays here, never sent
    )


class Output(NamedTuple):
    """One captured stream: the first and the last bytes, and how many there were in all."""

    head: bytes
    tail: bytes
    total_bytes: int

    @property
    def dropped_bytes(self) -> int:
        return self.total_bytes - len(self.head) - len(self.tail)

    def whole(self) -> bytes | None:
        """All bytes, or None where the middle was dropped."""
        return self.head + self.tail if self.dropped_bytes == 0 else None


@dataclass(frozen=True, slots=True)
class RawResult:
    """What the agent brings home of one run, before anybody read its output.

    ``state``: ``done`` (the process ended by itself), ``timeout``, ``lease_expired``, ``stopped``, ``spawn_failed``
    (argv[0] could not be run), ``refused`` (a check or a required prepare step failed; ``error`` says which).
    ``evidence``: returncode/signal aside, what the device saw: ``usage``, ``cgroup``, ``pressure``, ``load``,
    ``stamps``, ``prepare``, ``telemetry`` (docs/agent.md lists every key).
    """

    state: str
    returncode: int | None
    duration_s: float | None
    stdout: Output
    stderr: Output
    error: str | None = (
        None  # a code: "file_missing", "digest_mismatch", "axis_not_applied", "not_idle", "not_found", ...
    )
    detail: str | None = None  # a sentence for people
    oom_kills: int | None = None
    boot_id: str | None = None
    tree_dead: bool | None = None
    evidence: Mapping[str, Json] = EMPTY
    device: Mapping[str, Json] = EMPTY  # M-41 facts, as the agent read them
    files: tuple[Mapping[str, Json], ...] = ()  # what the device keeps of Task.outputs and logs, to be fetched


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a workload read out of a RawResult. ``ok`` is False when the output breaks one of the workload's rules."""

    ok: bool
    message: str | None = None  # why not ok
    metrics: Mapping[str, Json] = EMPTY  # M-46 names where they fit
    workload: Mapping[str, Json] = EMPTY  # M-44
    backend: Mapping[str, Json] = EMPTY  # M-43
    samples: Mapping[str, Json] = EMPTY  # raw repeats by metric: {"prefill_tps": [..]}
    warnings: tuple[str, ...] = ()
    failure_class: FailureClass = FailureClass.MEASUREMENT


class Failure(NamedTuple):
    """Why a point has no result: the class, a sentence for people, and the evidence it rests on."""

    failure_class: FailureClass
    message: str
    evidence: Mapping[str, Json] = EMPTY


class Evidence(NamedTuple):
    """The part of a RawResult that decisions rest on (``core/policy.classify``)."""

    state: str
    returncode: int | None = None
    error: str | None = None
    detail: str | None = None
    oom_kills: int | None = None
    duration_s: float | None = None
    # Of a measurement alone, by the device's own clocks; None: cannot be told there, or nothing was measured.
    suspended_s: float | None = None  # how long the machine slept during the run
    clock_step_s: float | None = None  # by how much its wall clock was set (without `suspended_s`: sleep included)
    wrong_spec: str | None = None  # the device was not the one that is asked for when it started: a whole sentence
    limits_changed: str | None = None  # limits that were set anew during the run, as the end of a sentence


@dataclass(frozen=True, slots=True)
class Found:
    """What discovery found on one device for one backend: enough to build a task without asking again."""

    binary: str | None = None
    version: str | None = None
    details: Mapping[str, Json] = field(default_factory=dict)
