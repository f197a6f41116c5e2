"""What the tests of the llama workloads share: points, results, a device to discover on, and a way to run a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidewinder.model import Device, Found, Measurement, Output, Point, RawResult, Task
from sidewinder.workloads.llamacpp import LlamaCpp

CAPTURES = Path(__file__).parent.parent / "data" / "llama-bench"


INDEX: Mapping[str, Any] = json.loads((CAPTURES / "captures.json").read_text())
FOUND = Found(
    details={
        "programs": {
            "llama-bench": {"binary": "/opt/llama-bench/bin/llama-bench", "version": "0.7.0"},
            "llama-server": {"binary": "/opt/llama-bench/bin/llama-server", "version": "0.7.0"},
        },
        "python": "python3",
    }
)


def captured(name: str) -> RawResult:
    stdout, stderr = ((CAPTURES / f"{name}.{stream}").read_bytes() for stream in ("stdout", "stderr"))
    return result(stdout, stderr, INDEX[name]["returncode"])


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CAPTURES / f"{name}.stdout").read_text().splitlines()]


def as_result(rows: list[dict[str, Any]]) -> RawResult:
    return result("".join(json.dumps(row) + "\n" for row in rows).encode())


def parse(raw: RawResult, asked: Point | None = None, **of_device: Any) -> Measurement:
    asked = asked or point()
    workload = LlamaCpp()
    task = workload.build_task(asked, device(**of_device), FOUND)
    return workload.parse(asked, task, raw)


def point(**settings: Any) -> Point:
    defaults: dict[str, Any] = {
        "run_id": "point-0123456789ab",
        "experiment": "test",
        "device": "bench",
        "backend": "llamacpp",
        "mode": "throughput",
        "model": "tiny",
        "model_path": "/srv/models/tiny.gguf",
        "prompt_tokens": 64,
        "output_tokens": 16,
        "threads": 1,
        "repetitions": 3,
    }
    return Point(**{**defaults, **settings})


def device(**settings: Any) -> Device:
    return Device(**{"id": "bench", "kind": "any", **settings})


def result(stdout: bytes = b"", stderr: bytes = b"", returncode: int | None = 0) -> RawResult:
    return RawResult(
        state="done",
        returncode=returncode,
        duration_s=1.0,
        stdout=Output(stdout, b"", len(stdout)),
        stderr=Output(stderr, b"", len(stderr)),
    )


@dataclass
class View:
    """A device that answers from a table: which paths exist, and what each program says."""

    device: Device = field(default_factory=device)
    facts: Mapping[str, Any] = field(default_factory=dict)
    existing: Mapping[str, str] = field(default_factory=dict)  # path as asked -> path as it is on the device
    answers: Mapping[str, tuple[int, bytes, bytes] | Exception] = field(default_factory=dict)  # by program
    looked: list[tuple[str, ...]] = field(default_factory=list)
    ran: list[tuple[str, ...]] = field(default_factory=list)

    async def first_existing(self, paths: Sequence[str]) -> str | None:
        self.looked.append(tuple(paths))
        return next((self.existing[path] for path in paths if path in self.existing), None)

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> tuple[int, bytes, bytes]:
        self.ran.append(tuple(argv))
        program = next(word for word in argv if word != "env" and "=" not in word)
        answer = self.answers.get(program, FileNotFoundError(program))
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class ThisMachine:
    """A device that really runs what it is asked: this machine, without an agent."""

    device: Device = field(default_factory=device)
    facts: Mapping[str, Any] = field(default_factory=lambda: {"python_executable": sys.executable})

    async def first_existing(self, paths: Sequence[str]) -> str | None:
        return next((real for path in paths if os.path.exists(real := os.path.expanduser(path))), None)  # noqa: ASYNC240

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> tuple[int, bytes, bytes]:
        done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, check=False)  # noqa: ASYNC221
        return done.returncode, done.stdout, done.stderr


def run_task(task: Task) -> RawResult:
    """The task's process, here, in a fresh empty folder as on a device."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            task.argv,
            input=task.stdin,
            capture_output=True,
            env={**os.environ, **task.env},
            cwd=folder,
            timeout=task.timeout_s,
            check=False,
        )
    return result(done.stdout, done.stderr, done.returncode)
