"""A takeover: the newest front of a controller ends the older ones, so that bytes queued for a dead link never act."""

import fcntl
import os
import signal
import time

from .clocks import process_start
from .records import check_component
from .sysfiles import read_json, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE_S = 3.0


def take_over(state_dir: str, client: str) -> "tuple[int | None, int | None]":
    """(descriptor to keep open or None when the older front cannot be ended, pid of the front that was ended)."""
    folder = os.path.join(state_dir, "fronts")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, check_component(client))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    ended = None
    end_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            older = read_json(path)
            if isinstance(older, dict) and _is_same(older):
                ended = older["pid"]
                try:
                    os.kill(ended, signal.SIGKILL)
                except OSError:
                    pass
            if time.monotonic() >= end_s:
                os.close(fd)
                return None, ended
            time.sleep(0.005)
    me = os.getpid()
    os.ftruncate(fd, 0)
    write_all(fd, b'{"pid": %d, "start": %d}' % (me, process_start(me) or 0))
    return fd, ended


def _is_same(older: "dict[str, Any]") -> bool:
    # The file may still name a front of long ago: between a new front's lock and its name there is an instant, and
    # its number may belong to anybody by now.
    return process_start(older["pid"]) in (None, older["start"]) and older["pid"] != os.getpid()
