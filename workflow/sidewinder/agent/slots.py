"""A slot lock: the one right to run something in a slot of this device, held by whoever inherited its descriptor.

It is a ``flock`` on a file below the state folder, so it outlives ``kill -9`` of runner and front for as long as one
process of the run lives, and the kernel frees it with the last. ``flock`` on ``/`` needs no file but is one lock for a
whole machine: several slots, several lab devices on one host and pods that share a kernel need one each.
"""

import errno
import fcntl
import json
import os
import time

from .records import check_component
from .sysfiles import read_json, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SlotLock:
    def __init__(self, state_dir: str, name: str, slot: int) -> None:
        self.path = os.path.join(state_dir, "locks", f"{check_component(name)}.{int(slot)}")

    def try_take(self, wait_s: float = 0.0) -> "int | None":
        """A descriptor that holds the lock, or None when somebody else has it for longer than ``wait_s``."""
        end_s = time.monotonic() + wait_s
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_still(fd):
                    return fd
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    os.close(fd)
                    raise
            os.close(fd)
            if time.monotonic() >= end_s:
                return None
            time.sleep(0.002)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            return os.open(self.path, flags, 0o600)

    def _is_still(self, fd: int) -> bool:
        # A cleaner may have removed the file between open and flock: then another start would lock another inode.
        mine = os.fstat(fd)
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

    def sign(self, fd: int, holder: "dict[str, Any]") -> None:
        """Write down who holds it, for the message that a refused controller shows."""
        data = json.dumps(holder).encode()
        os.lseek(fd, 0, os.SEEK_SET)
        write_all(fd, data)
        os.ftruncate(fd, len(data))  # not to 0 before: ext4 would bring such a file to the disk when it is closed

    def holder(self) -> "dict[str, Any] | None":
        """Who signed last. May be None for an instant after a change of hands."""
        found = read_json(self.path)
        return found if isinstance(found, dict) else None
