"""A marker: a file that only tells Snakemake that a point is open, by being newer than the point's record.

Snakemake compares times and, for an input it has seen, checksums: a marker therefore gets fresh content each time, or
after a backup, a copy or a `touch` an open point would be taken for finished (docs/design.md §7).
"""

from __future__ import annotations

import os
import secrets
from typing import Final

from .atomic import publish_error

_STEP_NS: Final = 10_000_000  # file systems count in steps of up to 10 ms (ext3, some network ones: whole seconds)
_SECOND_NS: Final = 1_000_000_000


def open_marker(record: str, marker: str, done: bool, *, write: bool = True) -> bool:
    """Whether Snakemake is to be told of ``marker`` (as ``ancient`` where the point is done).

    A record that is there but not done gets a marker newer than itself; where there is no record nothing has to be
    said, because its absence is reason enough. ``write`` is for the main process alone: in a spawned job the record may
    be just being written. Raises ``PublishError`` where the marker cannot be written, a warning under ``-n``.
    """
    if not done and write and os.path.lexists(record):
        touch_newer(marker, record)
    return os.path.exists(marker)


def touch_newer(marker: str, than: str) -> None:
    """Give ``marker`` fresh content and a time after that of ``than``, whatever the clock says."""
    try:
        stamp_ns = os.stat(than).st_mtime_ns
        fd = os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, secrets.token_hex(8).encode())
        finally:
            os.close(fd)
        for ahead_ns in (_STEP_NS, 2 * _SECOND_NS):
            if os.stat(marker).st_mtime_ns > stamp_ns:
                return
            os.utime(marker, ns=(stamp_ns + ahead_ns,) * 2)
    except OSError as error:
        if not os.path.exists(than):  # it vanished meanwhile: nothing to be newer than
            return
        raise publish_error("marker", marker, error) from error
