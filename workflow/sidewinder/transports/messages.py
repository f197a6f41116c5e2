"""A message: what is said to an agent or by it, as a value of the program beside its JSON (docs/agent.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from sidewinder.model import Failure, Json, Output, RawResult, Task


class Hello(NamedTuple):
    """What a front says of itself. ``facts`` are the device's (M-41), read once per boot."""

    version: str
    python: str
    platform: str
    node: str
    boot_id: str
    state_dir: str
    facts: Mapping[str, Json]
    ended_front: int | None = None  # an older front of this controller that was ended


class Status(NamedTuple):
    """``state``: ``absent``, ``running``, ``finished`` or ``lost``, ``why`` being ``rebooted``, ``runner_died`` or
    ``no_record``. ``death``: of one that is lost, where the way there knows how it ended and that it is over."""

    state: str
    why: str = ""
    max_attempt: int = 0
    death: Failure | None = None


class Started(NamedTuple):
    """``outcome``: ``started``, ``exists`` (with ``state``), ``busy`` (with ``holder``, ``mine``), ``stale``."""

    outcome: str
    state: str = ""
    why: str = ""
    max_attempt: int = 0
    holder: str = ""
    mine: bool = False
    held_by: tuple[str, str, int] | None = None  # campaign, run id, attempt of the holder


class Looked(NamedTuple):
    """``kind``: ``file``, ``folder``, ``other``, ``absent``, or ``unknown`` when the device could not look."""

    path: str
    real: str
    kind: str
    size_bytes: int | None = None
    mtime_ns: int | None = None
    executable: bool = False
    detail: str = ""


class Executed(NamedTuple):
    returncode: int
    stdout: bytes
    stderr: bytes


class ClockOffset(NamedTuple):
    """Device clock minus controller clock, off by at most ``bound_s`` (half of the best round trip)."""

    offset_s: float
    bound_s: float
    probes: int


def task_message(task: Task) -> dict[str, Any]:
    """A task as JSON; its stdin travels as the frame's blob."""
    return {
        "argv": list(task.argv),
        "env": dict(task.env),
        "cwd": task.cwd,
        "timeout_s": task.timeout_s,
        "grace_s": task.grace_s,
        "output_cap_bytes": task.output_cap_bytes,
        "checks": [list(check) for check in task.checks],
        "prepare": dict(task.prepare),
        "require": list(task.require),
        "sample_hz": task.sample_hz,
        "sample_power": task.sample_power,
        "idle_gate": dict(task.idle_gate),
        "inputs": [list(one) for one in task.inputs],
        "folders": list(task.folders),
        "outputs": list(task.outputs),
        "logs": list(task.logs),
        "keep_result_s": task.keep_result_s,
    }


def split_result(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON of a result and the bytes of its streams, from the file as the runner wrote it."""
    size, _, rest = data.partition(b"\n")
    document: dict[str, Any] = json.loads(rest[: int(size)])
    return document, rest[int(size) :]


def raw_result(document: Mapping[str, Any], blob: bytes, facts: Mapping[str, Json]) -> RawResult:
    out, err = streams_of(document, blob)
    return RawResult(
        state=document["state"],
        returncode=document["returncode"],
        duration_s=document["duration_s"],
        stdout=out,
        stderr=err,
        error=document.get("error"),
        detail=document.get("detail"),
        oom_kills=document["oom_kills"],
        boot_id=document["boot_id"],
        tree_dead=document["tree_dead"],
        evidence=document["evidence"],
        device=facts,
        files=tuple(document.get("files") or ()),
    )


def streams_of(message: Mapping[str, Any], blob: bytes) -> tuple[Output, Output]:
    streams, at = [], 0
    for name in ("stdout", "stderr"):
        sizes = message[name]
        middle, end = at + sizes["head"], at + sizes["head"] + sizes["tail"]
        streams.append(Output(blob[at:middle], blob[middle:end], sizes["total"]))
        at = end
    return streams[0], streams[1]


def status_of(message: Mapping[str, Any]) -> Status:
    return Status(message["state"], message.get("why", ""), message.get("max_attempt", 0))


def holder_text(holder: Mapping[str, Any]) -> str:
    if not holder:
        return "a process that left no name"
    whose = f"{holder['who']} ({holder.get('client')})" if holder.get("who") else holder.get("client")
    text = f"{holder.get('run_id')}#{holder.get('n')} of {whose}"
    return f"{text} since {holder['since_utc']}" if holder.get("since_utc") else text
