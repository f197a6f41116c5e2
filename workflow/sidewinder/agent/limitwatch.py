"""A limit watch: told by the kernel the moment that a limit of our control group is set, so that one which is changed
and changed back during a run is not missed. It sleeps until then. Where the kernel does not tell, it sees nothing."""

import os

from .cgroups import Cgroup
from .processes import load_libc
from .pump import READABLE, Pump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IN_MODIFY = 2


class LimitWatch:
    """From its making on; ``end`` ends it."""

    def __init__(self, cgroup: Cgroup, pump: Pump) -> None:
        self._cgroup, self._pump = cgroup, pump
        self._fd = -1
        self._others = []  # type: list[dict[str, Any]]
        files = cgroup.limit_files()
        libc = load_libc() if files else None
        if libc is not None and hasattr(libc, "inotify_init1"):
            self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if libc is not None and self._fd >= 0:
            for path in files:
                libc.inotify_add_watch(self._fd, os.fsencode(path), _IN_MODIFY)
            pump.add(self._fd, READABLE, self._look)
        self.before = cgroup.limits()  # after the watch began: nothing lies between the two

    def _look(self) -> None:
        """The same values are set again by whoever manages the group; only others count."""
        try:
            while os.read(self._fd, 4096):
                pass
        except BlockingIOError:
            pass
        now = self._cgroup.limits()
        if now and now != self.before:
            self._others.append(now)

    def end(self) -> "dict[str, Any]":
        """``before``; ``after``, where that is another one; ``during``: another one that neither is.

        The descriptor stays open until the process ends: the kernel takes some 10 ms to close one, asleep, and nobody
        shall wait for that before the result is told."""
        if self._fd >= 0:
            self._look()
            self._pump.remove(self._fd)
        found = {"before": self.before}
        after = self._cgroup.limits()
        if after and after != self.before:
            found["after"] = after
        others = [one for one in self._others if one != after]
        if others:
            found["during"] = others[-1]
        return found
