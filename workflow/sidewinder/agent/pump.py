"""A pump: file descriptors and what to do when they are ready, waited for in one poll."""

import math
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

READABLE = select.POLLIN
WRITABLE = select.POLLOUT


class Pump:
    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers = {}  # type: dict[int, Callable[[], object]]

    def add(self, fd: int, events: int, handler: "Callable[[], object]") -> None:
        self._poll.register(fd, events)
        self._handlers[fd] = handler

    def remove(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def turn(self, timeout_s: "float | None" = None) -> None:
        """Wait for the first that is ready (or the time), handle all that are."""
        # Rounded up: a timer that is 0.3 ms away must not become a busy loop.
        wait_ms = None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))
        for fd, _events in self._poll.poll(wait_ms):
            handler = self._handlers.get(fd)  # an earlier handler of this turn may have removed it
            if handler is not None:
                handler()
