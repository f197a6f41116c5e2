"""A heartbeat: the small file by which a holder of a lock is seen to live from another host.

Its holder rewrites it every half minute. Whoever judges looks, by its own monotonic clock, whether the content changes;
nobody ever compares the clocks of two hosts. A beat is some bytes in place, written without a sync: on a disk of this
machine it is no load beside a measurement, and a network file system hands it over when the file is closed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import Final

BEAT_S: Final = 30.0
WATCH_S = 100.0  # three beats, and what a network file system may keep from us for a while
LOOK_S = 2.0

Clock = Callable[[], float]
Pause = Callable[[float], None]


def beat_file(path: str) -> str:
    """The heartbeat of whoever is named in the file ``path``."""
    return f"{path}.beat"


class Heart:
    """The holder's side. ``beats_on`` is asked before each beat: whoever lost the lock meanwhile beats no more."""

    def __init__(self, path: str, beats_on: Callable[[], bool], every_s: float = BEAT_S) -> None:
        self._path, self._beats_on, self._every_s = beat_file(path), beats_on, every_s
        self._name = os.urandom(6).hex()
        self._count = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self.beat()
        self._thread = threading.Thread(target=self._live, name="sidewinder-heartbeat", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        while not self._stopped.wait(self._every_s):
            if not self._beats_on():
                return
            self.beat()

    def beat(self) -> None:
        """A disk that refuses costs the beat and nothing else: the journal tells of it soon enough."""
        self._count += 1
        text = f"{self._name} {self._count}".ljust(63) + "\n"
        with contextlib.suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.pwrite(fd, text.encode(), 0)
            finally:
                os.close(fd)  # where it is on its way to the others

    def stop(self, *, remove: bool = True) -> None:
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if remove:
            forget(self._path.removesuffix(".beat"))


def read(path: str) -> bytes | None:
    """The heartbeat of whoever is named in ``path``; None: it has none, or cannot be read."""
    try:
        with open(beat_file(path), "rb") as file:  # opened anew each time: a network file system looks again then
            return file.read(256)
    except OSError:
        return None


def forget(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(beat_file(path))


def moving(paths: Iterable[str], now: Clock, pause: Pause, limit_s: float) -> str | None:
    """The first of these whose heartbeat changes while we watch; None: all stood still for ``limit_s``."""
    first = {path: read(path) for path in paths}
    end_s = now() + limit_s
    while now() < end_s:
        pause(LOOK_S)
        for path, content in first.items():
            if read(path) != content:
                return path
    return None
