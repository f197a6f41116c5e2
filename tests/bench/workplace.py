"""A workplace: the folder in which a benchmark works, on the disk that the temporary files of this machine lie on.

ext4 does not reuse an inode for up to five minutes after its file was deleted, and looks at all of them one by one:
near a folder of which many files were just removed (the tests do that) a new file costs 0.2 to 0.4 ms instead of 0.05.
Folders of a top directory (`chattr +T`) are spread over the disk instead, and nothing is removed before the end.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# linux/fs.h, ext4.h; elsewhere the folder is an ordinary one
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_TOP_DIRECTORY = 0x00020000


@contextmanager
def workplace() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sidewinder-bench-") as folder:
        _spread(folder)
        yield Path(folder)


def _spread(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _TOP_DIRECTORY))
    except OSError:
        pass  # another file system: it has no such trap, or no way around it
    finally:
        os.close(fd)
