"""A foreign job: an ordinary job of a larger pipeline, run here as a Snakemake process of its own.

When it may run is the engine's business: in turn with what is measured on this machine. What it prints goes to a file
below ``.snakemake/sidewinder_logs``; its end is told from there when it fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sidewinder.model import Failure

LOGS = ".snakemake/sidewinder_logs"
_GRACE_S = 5.0
_TAIL_BYTES = 4096


class ForeignJobs:
    """The processes of foreign jobs that run now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stopped = False

    def run(self, command: str, log: str) -> Failure | None:
        """Run one to its end; called in a thread of the engine."""
        from sidewinder.model import Failure, FailureClass

        os.makedirs(os.path.dirname(log), exist_ok=True)
        with open(log, "wb") as out:
            with self._lock:
                if self._stopped:
                    return Failure(FailureClass.CANCELLED, "stopped before it started")
                # a session of its own: Ctrl-C in a terminal reaches us alone, and we end the whole group
                process = subprocess.Popen(
                    ["bash", "-c", command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running[process.pid] = process
            code = process.wait()
        with self._lock:
            self._running.pop(process.pid, None)
        if code == 0:
            return None
        if self._stopped:
            return Failure(FailureClass.CANCELLED, "stopped")
        how = f"exit code {code}" if code > 0 else f"signal {signal.Signals(-code).name}"
        return Failure(FailureClass.MEASUREMENT, f"ended with {how}; it said last:\n{_tail(log)}")

    def stop(self) -> None:
        """End all of them, politely first; bounded."""
        with self._lock:
            self._stopped = True
            running = list(self._running.values())
        for process in running:
            _signal_group(process, signal.SIGTERM)
        for process in running:
            try:
                process.wait(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                pass
            # the leader may be gone while its children are not
            _signal_group(process, signal.SIGKILL)


def log_path(job: Any) -> str:
    return str(job.logfile_suggestion(LOGS))


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # all of the group is gone (macOS says "not permitted" for a group of zombies)


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace").strip()
    except OSError as error:
        return f"(its output could not be read: {error})"
