"""A controller's name: what another one's user is shown when a device is busy with our run."""

from __future__ import annotations

import getpass
import os
import socket
from functools import lru_cache


@lru_cache
def this_controller() -> str:
    """``USER@HOST, pid N``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in some containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, pid {os.getpid()}"
