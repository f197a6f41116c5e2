"""An atomic publish: the one way a file comes to lie under its final name, whole or not at all.

Temp beside the target, write, fsync, rename, fsync the folder. A reader (or the next controller) sees the old content
or the new one at every kill point, also through a power cut; what a dead controller leaves behind is a temp that
``is_temp`` knows and ``sweep`` removes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from sidewinder.errors import PublishError

_TEMP_SUFFIX: Final = ".partial"
_counter = itertools.count()
_token = os.urandom(3).hex()

# Some network and FUSE file systems cannot sync a folder and say so; there is nothing more that could be done there.
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF})

_WHAT_TO_DO: Final = {
    errno.ENOSPC: "the disk is full: free some space and run the same command again, what is published is safe",
    errno.EDQUOT: "the quota is used up: free some space and run the same command again, what is published is safe",
    errno.EROFS: "the file system is read-only: make it writable or choose another output_dir",
    errno.EACCES: "no permission: make the folder writable for this user or choose another output_dir",
    errno.EPERM: "no permission: make the folder writable for this user or choose another output_dir",
    errno.EIO: "the disk reports an error: look at its health (dmesg) before you go on",
    errno.ENOTDIR: "a file lies where a folder should be: move it away",
    errno.EISDIR: "a folder lies where a file should be: move it away",
}


class FileOps:
    """The file operations that everything durable rests on: the seam where tests die, lose power or fill the disk."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def open_append(self, path: str) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)

    def write(self, fd: int, data: bytes) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        full = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync alone stops at the drive's cache
        if full is None:
            os.fsync(fd)
        else:
            fcntl.fcntl(fd, full)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
        finally:
            os.close(fd)

    def sync_tree(self, path: str) -> bool:
        """Bring everything written below ``path`` to the disk in one go; False where the system cannot."""
        if _syncfs is None:
            return False
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _syncfs(fd) != 0:
                code = ctypes.get_errno()
                if code in _CANNOT_SYNC:
                    return False
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)
        return True


REAL: Final = FileOps()


def _find_syncfs() -> Callable[[int], int] | None:
    """Linux only; elsewhere every file is synced by itself (macOS' sync() returns before anything is on the disk)."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None, use_errno=True).syncfs
    except (OSError, AttributeError):
        return None
    return found


_syncfs: Final = _find_syncfs()


def publish_error(what: str, path: str, error: OSError) -> PublishError:
    """The sentence for a person: what could not be written, where, why, and what to do about it."""
    name = errno.errorcode.get(error.errno or 0, "?")
    advice = _WHAT_TO_DO.get(error.errno or 0, "nothing was changed under its final name")
    return PublishError(f"could not write {what} {path}: {error.strerror or error} ({name}); {advice}")


def temp_name(path: str) -> str:
    """A fresh name beside ``path``: unique over processes, forks and threads."""
    folder, slash, base = path.rpartition("/")
    return f"{folder}{slash}.{base[:120]}.{os.getpid()}-{_token}-{next(_counter):x}{_TEMP_SUFFIX}"


def is_temp(name: str) -> bool:
    return name.startswith(".") and name.endswith(_TEMP_SUFFIX)


def make_folder(path: str, ops: FileOps = REAL) -> None:
    """``mkdir -p`` that survives a power cut: each new name is synced in its parent."""
    try:
        ops.mkdir(path)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_folder(os.path.dirname(path), ops)
        try:
            ops.mkdir(path)
        except FileExistsError:  # another process was faster
            return
    ops.fsync_dir(os.path.dirname(path) or ".")


def probe(folder: str, ops: FileOps = REAL) -> None:
    """Try whether ``folder`` (made where it is missing) takes a new file: permission bits do not tell of a read-only
    mount, a full disk or a quota. Raises ``PublishError``."""
    try:
        make_folder(folder, ops)
        temp, _ = write_temp(f"{folder}/probe", b"\0", sync=False, ops=ops)
        discard([temp], ops)
    except OSError as error:
        raise publish_error("to run folder", folder, error) from error


def write_all(fd: int, data: bytes, ops: FileOps = REAL) -> None:
    """All of ``data``: a nearly full disk takes a part and says so only at the next write."""
    written = ops.write(fd, data)
    while written < len(data):
        written += ops.write(fd, data[written:])


def write_temp(path: str, data: bytes, *, sync: bool, ops: FileOps = REAL) -> tuple[str, os.stat_result]:
    """``data`` in a temp beside ``path`` and its stat; a failure leaves no temp. Raises ``OSError``."""
    temp = temp_name(path)
    try:
        fd = ops.create(temp)
    except FileNotFoundError:  # the folder is new, or somebody removed it: cheaper to ask only then
        make_folder(os.path.dirname(path), ops)
        fd = ops.create(temp)
    try:
        try:
            write_all(fd, data, ops)
            if sync:
                ops.fsync(fd)
            stat = os.fstat(fd)
        finally:
            ops.close(fd)
    except OSError:
        discard([temp], ops)
        raise
    return temp, stat


def discard(temps: Iterable[str], ops: FileOps = REAL) -> None:
    """Remove temps after a failure; one that cannot be removed is left to ``sweep``."""
    for temp in temps:
        try:
            ops.unlink(temp)
        except OSError:
            continue


def publish(path: str, data: bytes, *, sync: bool = True, what: str = "file", ops: FileOps = REAL) -> os.stat_result:
    """Put ``data`` under ``path``, replacing what is there. Raises ``PublishError``; then the old content stands.

    ``sync=False`` is still all or nothing for every reader, but may be undone by a power cut.
    """
    try:
        temp, stat = write_temp(path, data, sync=sync, ops=ops)
        try:
            ops.rename(temp, path)
        except OSError:
            discard([temp], ops)
            raise
        if sync:
            ops.fsync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise publish_error(what, path, error) from error
    return stat


def publish_new(path: str, data: bytes, *, what: str = "file", ops: FileOps = REAL) -> bool:
    """Like ``publish``, but only if nothing lies there: of several at once exactly one gets True."""
    try:
        temp, _ = write_temp(path, data, sync=True, ops=ops)
        try:
            ops.link(temp, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _CANNOT_SYNC | {errno.EPERM, errno.EMLINK}:
                raise
            if os.path.exists(path):  # no hard links on this file system: the next best
                return False
            ops.rename(temp, path)
        finally:
            discard([temp], ops)
        ops.fsync_dir(os.path.dirname(path) or ".")
    except OSError as error:
        raise publish_error(what, path, error) from error
    return True


def publish_batch(
    folder: str, files: Sequence[tuple[str, bytes]], *, what: str = "file", ops: FileOps = REAL
) -> list[os.stat_result]:
    """Publish many files of one file system with one sync: all temps, one ``sync_tree(folder)``, all renames, folders.

    Data is on the disk before any rename, so that a power cut cannot leave an empty file under a final name.
    Not all or nothing as a whole: after a failure some are published and the others are as they were.
    """
    temps: list[str] = []
    stats: list[os.stat_result] = []
    path = folder
    try:
        try:
            for path, data in files:
                temp, stat = write_temp(path, data, sync=False, ops=ops)
                temps.append(temp)
                stats.append(stat)
            path = folder
            if files and not ops.sync_tree(folder):
                for temp in temps:
                    _sync_file(temp, ops)
            for index, (path, _) in enumerate(files):
                ops.rename(temps[index], path)
                temps[index] = ""
            for path in dict.fromkeys(os.path.dirname(path) for path, _ in files):
                ops.fsync_dir(path)
        except OSError:
            discard((temp for temp in temps if temp), ops)
            raise
    except OSError as error:
        raise publish_error(what, path, error) from error
    return stats


def _sync_file(path: str, ops: FileOps) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        ops.fsync(fd)
    finally:
        os.close(fd)


def sweep(folder: str, *, depth: int = 2, ops: FileOps = REAL) -> int:
    """Remove the temps of dead controllers in ``folder`` and ``depth`` levels below it; how many there were.

    Only for the exclusive holder of the run folder: another process' temp may be about to be renamed.
    """
    found = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_temp(entry.name):
                    discard([entry.path], ops)
                    found += 1
                elif depth and entry.is_dir(follow_symlinks=False):
                    found += sweep(entry.path, depth=depth - 1, ops=ops)
    except OSError:  # not there yet, or not ours to read: then there is nothing of ours in it either
        return found
    return found
