"""Signals: how a run is stopped from outside without losing what was measured.

SIGTERM lets running points finish and starts no other. Snakemake's own handler takes a lock that the interrupted
thread may hold (it then hangs for ever, facts of 9.27.1) and waits for everything that was handed over.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Termination:
    """Our handler of SIGTERM while jobs run; the one before is put back at the end."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: Any = None
        self._installed = False
        self._thread: threading.Thread | None = None

    def install(self) -> None:
        """Once, and only where Python allows it: in the main thread."""
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = True
        self._before = signal.signal(signal.SIGTERM, self._handle)

    def restore(self) -> None:
        if self._installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)
            self._installed = False

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        # No lock is taken here: the main thread, which runs this, may hold it.
        if self._thread is None:
            self._thread = threading.Thread(target=self._stop, daemon=True, name="sidewinder-sigterm")
            self._thread.start()
