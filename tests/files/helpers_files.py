"""What the tests of the files room share: small plans, records, and a disk on which one can die."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sidewinder.files import records
from sidewinder.files.atomic import FileOps
from sidewinder.model import Device, Lab, Output, Plan, Point, Policy, RawResult

CAMPAIGN = "11111111-2222-3333-4444-555555555555"
NOTHING = Output(b"", b"", 0)


def point(run_id: str, device: str = "pi5", **fields: Any) -> Point:
    return Point(run_id, "exp", device, "command", "command", **fields)


def plan_of(*points: Point, accept: dict[str, str] | None = None, points_per_job: int = 1) -> Plan:
    devices = {p.device: Device(p.device, "local") for p in points}
    lab = Lab("exp", "runs/exp", devices, policy=Policy(points_per_job=points_per_job), accept=accept or {})
    return Plan(lab, {p.run_id: p for p in points}, CAMPAIGN)


def ok(run_id: str, value: float = 1.0, **more: Any) -> dict[str, Any]:
    return {"schema_version": 1, "run_id": run_id, "status": "ok", "metrics": {"x": value}, **more}


def failed(run_id: str, why: str = "measurement", message: str = "exit code 3", **more: Any) -> dict[str, Any]:
    failure = {"class": why, "message": message, "evidence": {}}
    return {"schema_version": 1, "run_id": run_id, "status": "failed", "error": message, "failure": failure, **more}


def hole(run_id: str) -> dict[str, Any]:
    return failed(run_id, "not_attempted", "not attempted")


def raw_result(stdout: bytes = b"", stderr: bytes = b"", **fields: Any) -> RawResult:
    return RawResult(
        fields.pop("state", "done"),
        fields.pop("returncode", 0),
        fields.pop("duration_s", 1.5),
        Output(stdout, b"", len(stdout)),
        Output(stderr, b"", len(stderr)),
        **fields,
    )


def status(folder: str | Path, run_id: str, device: str = "pi5") -> str:
    return records.status_of(f"{folder}/records/{device}/{run_id}.json", run_id)


def tree(folder: str | Path) -> dict[str, bytes]:
    """Every file below the folder but locks; of shard manifests the times are struck out, which no two runs share."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            relative = os.path.relpath(path, folder)
            if relative.startswith("controller.lock"):
                continue
            data = Path(path).read_bytes()
            if relative.startswith("shards/") and name.endswith(".json"):
                manifest = json.loads(data)
                manifest["points"] = {run_id: entry[:3] for run_id, entry in manifest["points"].items()}
                data = json.dumps(manifest).encode()
            found[relative] = data
    return found


class _Unsynced(FileOps):
    """The real operations without waiting for a disk, for the parts of a test where nobody dies."""

    def fsync(self, fd: int) -> None:
        pass

    def fsync_dir(self, path: str) -> None:
        pass


UNSYNCED = _Unsynced()


class Killed(BaseException):
    """``kill -9``: nothing below may catch it by name."""


class MortalDisk(FileOps):
    """Real files on a disk that remembers what is not synced, dies at operation ``die_at``, and can lose power then.

    ``half``: a write that is the last operation puts half of its bytes on the disk before the death.
    """

    def __init__(self, die_at: int | None = None, *, half: bool = False) -> None:
        self.die_at, self.half = die_at, half
        self.log: list[str] = []
        self._paths: dict[int, str] = {}
        self._dirty: dict[str, int] = {}  # path -> length that is safe
        self._undo: list[tuple[str, Callable[[], None]]] = []  # (folder whose sync makes it safe, how it is lost)

    def _step(self, name: str, path: str) -> None:
        if self.die_at is not None and len(self.log) >= self.die_at:
            raise Killed(f"{name} {path}")
        self.log.append(f"{name} {os.path.basename(path)}")

    def create(self, path: str) -> int:
        self._step("create", path)
        fd = super().create(path)
        self._paths[fd] = path
        self._dirty[path] = 0
        self._undo.append((os.path.dirname(path), lambda: _remove(path)))
        return fd

    def open_append(self, path: str) -> int:
        self._step("open_append", path)
        new = not os.path.exists(path)
        fd = super().open_append(path)
        self._paths[fd] = path
        if new:
            self._undo.append((os.path.dirname(path), lambda: _remove(path)))
        return fd

    def write(self, fd: int, data: bytes) -> int:
        path = self._paths[fd]
        if self.half and len(self.log) == self.die_at:
            os.write(fd, data[: len(data) // 2])
        self._step("write", path)
        self._dirty.setdefault(path, os.fstat(fd).st_size)
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        path = self._paths.get(fd) or os.readlink(f"/proc/self/fd/{fd}")
        self._step("fsync", path)
        self._dirty.pop(path, None)

    def close(self, fd: int) -> None:
        self._paths.pop(fd, None)
        super().close(fd)

    def rename(self, source: str, target: str) -> None:
        self._step("rename", target)
        before = Path(target).read_bytes() if os.path.exists(target) else None
        content = Path(source).read_bytes()
        super().rename(source, target)
        if source in self._dirty:
            self._dirty[target] = self._dirty.pop(source)
        else:
            self._dirty.pop(target, None)

        def lose() -> None:
            _put(source, content)
            _remove(target) if before is None else _put(target, before)

        self._undo.append((os.path.dirname(target), lose))

    def link(self, source: str, target: str) -> None:
        self._step("link", target)
        super().link(source, target)
        if source in self._dirty:
            self._dirty[target] = self._dirty[source]
        self._undo.append((os.path.dirname(target), lambda: _remove(target)))

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        content = Path(path).read_bytes()
        super().unlink(path)
        self._undo.append((os.path.dirname(path), lambda: _put(path, content)))

    def mkdir(self, path: str) -> None:
        self._step("mkdir", path)
        super().mkdir(path)
        self._undo.append((os.path.dirname(path), lambda: shutil.rmtree(path)))

    def fsync_dir(self, path: str) -> None:
        self._step("fsync_dir", path)
        self._undo = [(folder, lose) for folder, lose in self._undo if folder != path]

    def sync_tree(self, path: str) -> bool:
        self._step("sync_tree", path)
        self._dirty.clear()
        self._undo.clear()
        return True

    def lose_names(self, below: str = "") -> None:
        """Power is cut: what was not synced of folders (with ``below`` in their path) did not come to the disk."""
        for folder, lose in reversed(self._undo):
            if below in folder:
                lose()

    def lose_data(self) -> None:
        """Power is cut: all names came to the disk, but of the unsynced bytes only the lengths: zeros."""
        for path, safe in self._dirty.items():
            if os.path.exists(path):
                size = os.path.getsize(path)
                with open(path, "r+b") as file:
                    file.seek(safe)
                    file.write(b"\0" * (size - safe))


def _put(path: str, content: bytes) -> None:
    _remove(path)  # never write through a hard link
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(content)


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)
