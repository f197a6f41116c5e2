"""A holder: the process that a lock names, told apart from every other process there ever was.

A pid alone comes back; with host, boot id and start time it does not.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock: ``start`` is the process' start time as its system counts it, an opaque text."""

    host: str
    boot_id: str | None
    pid: int
    start: str | None
    since_utc: str
    what: str = "controller"

    @classmethod
    def me(cls, what: str = "controller") -> Holder:
        pid = os.getpid()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), boot_id(), pid, start_of(pid), now, what)

    @classmethod
    def parse(cls, data: bytes) -> Holder | None:
        """None for an empty or torn text: whoever wrote it died before it was whole."""
        try:
            value = json.loads(data)
        except ValueError:
            return None
        if not isinstance(value, Mapping):
            return None
        host, pid = value.get("host"), value.get("pid")
        if not isinstance(host, str) or not isinstance(pid, int) or isinstance(pid, bool):
            return None
        return cls(
            host,
            _text(value.get("boot_id")),
            pid,
            _text(value.get("start")),
            str(value.get("since_utc", "an unknown time")),
            str(value.get("what", "controller")),
        )

    def encode(self) -> bytes:
        return json.dumps(
            {
                "host": self.host,
                "boot_id": self.boot_id,
                "pid": self.pid,
                "start": self.start,
                "since_utc": self.since_utc,
                "what": self.what,
            },
            separators=(",", ":"),
        ).encode()

    def is_here(self) -> bool:
        """Whether this machine can judge the holder at all."""
        return self.host == socket.gethostname()

    def is_provably_dead(self) -> bool:
        """Same machine, and: another boot, no such pid, or that pid started at another time. Unknown is no."""
        here = boot_id()
        if not self.is_here() or self.boot_id is None or here is None:
            return False
        if self.boot_id != here:
            return True
        started = start_of(self.pid)
        if started is None:
            return not _exists(self.pid)
        return self.start is not None and started != self.start

    def __str__(self) -> str:
        return f"a {self.what} on host {self.host} (pid {self.pid}, since {self.since_utc})"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def boot_id() -> str | None:
    """What tells this boot of this machine from every other; None where the system has no such thing."""
    if sys.platform == "linux":
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip() or None
        except OSError:
            return None
    return _ask("sysctl", "-n", "kern.bootsessionuuid") or _ask("sysctl", "-n", "kern.boottime")


def start_of(pid: int) -> str | None:
    """When ``pid`` started, in whatever way its system counts; None: no such process, or it cannot be told.

    A zombie has ended and only waits to be reaped: it holds nothing, so it never equals a start time.
    """
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The command's name may hold blanks and brackets: count fields from its last bracket on.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            return None
        return "ended" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
    return _ask("ps", "-o", "lstart=", "-p", str(pid))


def _ask(*argv: str) -> str | None:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=10, check=False, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
