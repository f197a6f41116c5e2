"""An input: a file of a user's rule, laid from the store into the run's fresh folder before its command starts.

Small ones are private copies, so that a command may do with them what it likes; large ones are hard links to the
store's read-only file. Either way the command sees the declared bytes: their digest is taken here, not remembered.
"""

import errno
import os

from .digests import DigestCache, read_digest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

LINK_FROM_BYTES = 64 << 20  # a copy takes as much room again, and on an SD card a second for each 30 MB


class InputLost(Exception):
    """The store does not have the declared bytes (any more): the controller may bring them again."""


def inside(work: str, path: str) -> str:
    """``path`` below ``work``; ValueError where it leads out of it."""
    if os.path.isabs(path) or ".." in path.split("/"):
        raise ValueError(f"not a path below the run's folder: {path!r}")
    return os.path.join(work, path)


def lay_out(
    inputs: "Sequence[Sequence[Any]]",
    folders: "Sequence[str]",
    work: str,
    state_dir: str,
    between: "Callable[[], object]",
) -> None:
    """Fill the fresh folder ``work``. Raises ``InputLost``, and ``OSError`` with ENOSPC before anything is copied."""
    small = []  # type: list[tuple[int, Sequence[Any]]]
    large = []  # type: list[tuple[int, Sequence[Any]]]
    for one in inputs:
        try:
            size = os.stat(one[1]).st_size
        except FileNotFoundError:
            raise InputLost(f"input {one[0]}: {one[1]} is not in the store") from None
        (large if size >= LINK_FROM_BYTES else small).append((size, one))
    room = os.statvfs(work)
    free = room.f_bavail * room.f_frsize
    needed = sum(size for size, _ in small)
    if needed > free:
        detail = f"the inputs need {needed} bytes beside the store and {free} are free"
        raise OSError(errno.ENOSPC, detail, work)
    for folder in folders:
        os.makedirs(inside(work, folder), exist_ok=True)
    for size, (path, source, sha256, executable) in small + large:
        target = inside(work, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if size >= LINK_FROM_BYTES and _link_input(path, source, target, sha256, state_dir, between):
            continue
        found = _copy_input(source, target, bool(executable), between)
        if found != sha256:
            not_those(f"input {path}", source, found)


def _link_input(
    path: str, source: str, target: str, sha256: str, state_dir: str, between: "Callable[[], object]"
) -> bool:
    """False: this file system has no hard links to give."""
    found = DigestCache(state_dir).sha256(source, between)
    if found != sha256:
        not_those(f"input {path}", source, found)
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def is_stored(path: str, sha256: str, state_dir: str) -> bool:
    """Whether that is where the store keeps this content: a controller brought it, and may bring it again."""
    return path == os.path.abspath(os.path.join(state_dir, "store", sha256))


def not_those(what: str, source: str, found: str) -> None:
    """Somebody wrote to the store's file, or its disk lost bytes: it must not be taken for whole again."""
    os.unlink(source)
    raise InputLost(f"{what}: {source} has SHA-256 {found} now; it was removed")


def _copy_input(source: str, target: str, executable: bool, between: "Callable[[], object]") -> str:
    """The digest of what was copied."""
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755 if executable else 0o644)
    try:
        with open(source, "rb", buffering=0) as file:
            return read_digest(file, between, out)
    finally:
        os.close(out)
