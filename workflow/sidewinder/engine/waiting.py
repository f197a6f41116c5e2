"""A waiting: a device that cannot be had yet, why, and since when (a pod that no node has room for).

For people only. The transport says why and says so again when the reason changes; the link knows when it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .clock import utc_now


class Waiting:
    """Of one device. ``told`` is called at every new reason, and once when it is over: then ``reason`` is None."""

    def __init__(self) -> None:
        self.reason: str | None = None  # None: nothing is waited for
        self.last = ""  # the last reason of this try, or of the last one
        self.since_utc = ""
        self.waited_s = 0.0  # of the last one that is over
        self.ready = False  # how that one ended: the device was had, or not
        self.told: Callable[[Waiting], None] | None = None
        self._since_s = 0.0
        self._trying = 0

    def because(self, reason: str) -> None:
        if reason == self.reason or not self._trying:
            return
        if self.reason is None:
            self.since_utc, self._since_s = utc_now(), asyncio.get_running_loop().time()
        self.reason = self.last = reason
        self._tell()

    @contextmanager
    def trying(self) -> Iterator[None]:
        """While somebody tries to have the device. Over when one of them has it, or the last one has not."""
        if not self._trying:
            self.last = ""  # what an earlier try waited for says nothing of this one
        self._trying += 1
        try:
            yield
        except BaseException:
            self._trying -= 1
            if not self._trying:
                self._over(False)
            raise
        self._trying -= 1
        self._over(True)

    def _over(self, ready: bool) -> None:
        if self.reason is not None:
            self.reason, self.ready = None, ready
            self.waited_s = round(asyncio.get_running_loop().time() - self._since_s, 1)
            self._tell()

    def _tell(self) -> None:
        if self.told is not None:
            self.told(self)
