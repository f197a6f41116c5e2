"""An append log: a file of JSON lines that only grows, where a torn line costs that line.

Several threads share one fsync (group commit); several processes may append to one file, each line in one write.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sidewinder.errors import PublishError

from . import atomic

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class AppendLog:
    """The writing end. Thread-safe; ``append`` with ``sync`` returns when the line is on the disk."""

    def __init__(self, path: str, *, what: str = "log", ops: atomic.FileOps = atomic.REAL) -> None:
        self.path, self._what, self._ops = path, what, ops
        self._lock = threading.Condition()
        self._fd: int | None = None
        self._written = 0  # tickets: lines handed to the kernel, and lines known to be on the disk
        self._synced = 0
        self._syncing = False
        self._torn = False
        self._broken: PublishError | None = None

    def append(self, entry: Mapping[str, Any], sync: bool = True) -> None:
        self.append_many((entry,), sync)

    def append_many(self, entries: Iterable[Mapping[str, Any]], sync: bool = True) -> None:
        """All lines with one write and at most one fsync. Raises ``PublishError``: then none is to be relied on."""
        data = b"".join(_line(entry) for entry in entries)
        if not data:
            return
        with self._lock:
            self._write(data)
            self._written += 1
            ticket = self._written
        if sync:
            self._sync(ticket)

    def flush(self) -> None:
        """Bring every line that was written without ``sync`` to the disk."""
        with self._lock:
            ticket = self._written
        if ticket:
            self._sync(ticket)

    def close(self) -> None:
        with self._lock:
            if self._fd is not None:
                self._ops.close(self._fd)
                self._fd = None

    def _open(self) -> int:
        try:
            new = not os.path.exists(self.path)
            try:
                fd = self._ops.open_append(self.path)
            except FileNotFoundError:
                atomic.make_folder(os.path.dirname(self.path), self._ops)
                fd = self._ops.open_append(self.path)
            if new:  # else a power cut could take the name with all its synced lines
                self._ops.fsync_dir(os.path.dirname(self.path) or ".")
            size = os.fstat(fd).st_size
            self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        except OSError as error:
            raise atomic.publish_error(self._what, self.path, error) from error
        return fd

    def _write(self, data: bytes) -> None:
        if self._broken is not None:
            raise self._broken
        if self._fd is None:
            self._fd = self._open()
        if self._torn:  # somebody died within a line: end it, so that it costs itself alone
            data = b"\n" + data
        try:
            # Until all is written the last line is torn; not cut off again, for another process may have appended.
            self._torn = True
            atomic.write_all(self._fd, data, self._ops)
            self._torn = False
        except OSError as error:
            raise atomic.publish_error(self._what, self.path, error) from error

    def _sync(self, ticket: int) -> None:
        with self._lock:
            while self._synced < ticket:
                if self._broken is not None:
                    raise self._broken
                if self._syncing:
                    self._lock.wait()
                    continue
                self._lead_sync()

    def _lead_sync(self) -> None:
        """Sync for everybody who has written by now; the lock is free meanwhile, so that others can go on writing."""
        fd, target = self._fd, self._written
        if fd is None:
            raise PublishError(f"the {self._what} {self.path} was closed with unsynced lines")
        self._syncing = True
        self._lock.release()
        failed: OSError | None = None
        try:
            self._ops.fsync(fd)
        except OSError as error:
            failed = error
        finally:
            self._lock.acquire()
            self._syncing = False
            self._lock.notify_all()
        if failed is None:
            self._synced = max(self._synced, target)
            return
        # After a failed fsync the kernel forgets what was dirty: a later one that succeeds would prove nothing.
        self._broken = atomic.publish_error(self._what, self.path, failed)
        raise self._broken from failed


def _line(entry: Mapping[str, Any]) -> bytes:
    return _ENCODER.encode(entry).encode("utf-8", "replace") + b"\n"


def read(path: str) -> Iterator[dict[str, Any] | None]:
    """The entries of a log in order; ``None`` for a line that is torn or no object. No log is an empty log."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below; the `with` starts where reading does
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            yield entry if isinstance(entry, dict) else None
