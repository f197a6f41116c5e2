"""A keeper: the first process of a pod's container, which buries orphans and ends the pod when nobody calls any more.

Its text is the container's command: standard library only, Python 3.7.

Whoever is called into the container (a front, a person's shell) has no parent in it: as long as there is one, somebody
is there. A front leaves at the end of its stream, and an API server or kubelet ends a stream whose other end is gone,
so a controller that died does not count.
"""

import os
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_S = 10.0
SIGNALS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
TERMINATED = 143


def parents() -> "Iterator[tuple[int, int]]":
    """Every process that can be seen, with its parent."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/" + name + "/stat", "rb") as file:
                    yield int(name), int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue  # it ended just now


def somebody_is_there() -> bool:
    return any(parent == 0 and pid not in (1, os.getpid()) for pid, parent in parents())


def bury() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass  # no child at all


def keep(idle_s: float) -> int:
    """The exit code: 0 when nobody was there for ``idle_s`` seconds (0: wait for ever), 143 when told to end."""
    # Blocked, they wait for us; and a first process would not get a signal that nobody handles.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    look_s = min(LOOK_S, idle_s / 4) if idle_s else LOOK_S
    now_s = seen_s = time.monotonic()
    next_look_s = now_s + look_s
    while True:
        told = signal.sigtimedwait(SIGNALS, max(0.0, next_look_s - now_s))
        if told is not None and told.si_signo != signal.SIGCHLD:
            return TERMINATED
        bury()
        now_s = time.monotonic()
        if now_s >= next_look_s:
            next_look_s = now_s + look_s
            if not idle_s or somebody_is_there():
                seen_s = now_s
            elif now_s - seen_s >= idle_s:
                return 0


if __name__ == "__main__":
    sys.exit(keep(float(sys.argv[1])))
