"""What tests of bad luck share: small disks, memory limits, and who still runs. All of it real, and gone afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PYTHON = (sys.executable, "-S", "-E", "-c")
VALUE = {"value": r"value=(\S+)"}
QUICK_RETRY = {"retry": {"backoff_s": 0.02, "max_backoff_s": 0.05}}


def python(code: str, *args: str, **more: Any) -> dict[str, Any]:
    """A block of one point that runs ``code``; its metric is ``value=...`` unless ``metrics`` says otherwise."""
    return {"backend": "command", "command": [*PYTHON, code, *args], "metrics": VALUE, **more}


def records(root: Path) -> dict[str, dict[str, Any]]:
    """Every record of a run folder, by run id."""
    found = [json.loads(path.read_bytes()) for path in sorted((root / "records").glob("*/*.json"))]
    return {record["run_id"]: record for record in found}


class Holed(NamedTuple):
    """A device that cannot be measured on. ``cause``: the class; ``says``: what the record's sentence must hold, the
    thing to do among it."""

    cause: str
    says: tuple[str, ...]


def of_device(root: Path, device: str) -> list[dict[str, Any]]:
    return [record for record in records(root).values() if record["device"]["device_id"] == device]


def assert_said(found: list[dict[str, Any]], device: str, case: Holed) -> None:
    """Each of its two points says why it was not measured, and what to do."""
    assert len(found) == 2
    for record in found:
        assert record["status"] == "failed"
        failure = record["failure"]
        if case.cause == "config":  # a file that is missing here: a failed result by docs/design.md §3, nothing ran
            assert failure["class"] == "config"
        else:
            assert failure["class"] == "not_attempted"
            assert failure["evidence"]["cause"] == case.cause
        for part in (device, *case.says):
            assert part in failure["message"]
        assert not record.get("metrics")


def assert_holes_say(root: Path, cases: Mapping[str, Holed]) -> None:
    """The list of holes has each device's reason."""
    told = json.loads((root / "summary/holes.json").read_text())
    reasons = {hole["device"]: hole["reason"] for hole in told["open"]}
    assert set(reasons) == set(cases)
    for device, case in cases.items():
        assert all(part in reasons[device] for part in case.says), (device, reasons[device])


def by_tag(root: Path) -> dict[str, dict[str, Any]]:
    return {record["tags"][0]: record for record in records(root).values()}


def running(text: str) -> list[str]:
    """Processes with ``text`` on their command line, each as ``pid command line``."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in line and int(pid) != os.getpid():
                found.append(f"{pid} {line}")
    return found


def until(what: Callable[[], bool], why: str, timeout_s: float = 60.0) -> None:
    """Poll for a state that must come; its time is no subject of the test."""
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end, f"it never came to that: {why}"
        time.sleep(0.02)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs of ``size`` on ``folder``. Skips where nothing can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here (it takes root on Linux): {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free. Unlink what is returned to free them."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1024))
    return ballast


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group (v1 or v2) with this limit, to be joined by its ``cgroup.procs``. Skips where there is none."""
    name = f"sidewinder-test-{uuid.uuid4().hex[:8]}"
    top = Path("/sys/fs/cgroup")
    v1 = (top / "memory" / "memory.limit_in_bytes").exists()
    group = top / "memory" / name if v1 else top / name
    limits = {"memory.limit_in_bytes": limit_bytes} if v1 else {"memory.max": limit_bytes, "memory.swap.max": 0}
    try:
        group.mkdir()
        for file, value in limits.items():
            if (group / file).exists() or file != "memory.swap.max":
                (group / file).write_text(str(value))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory control group can be made here (it takes root and the controller): {error}")
    try:
        yield group
    finally:
        # the agent's processes are on their way out when the controller has ended
        until(lambda: not (group / "cgroup.procs").read_text().split(), "the control group is empty")
        group.rmdir()
