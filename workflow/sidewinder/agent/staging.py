"""A store: files that a controller brought here, each under the SHA-256 of its content: ``<state>/store/<digest>``.

What is not whole yet lies beside it as ``<digest>.part`` and only grows. Several fronts may bring the same file at
once, and one may die at any byte: whoever writes holds the partial's ``flock`` for just that write, what is there
already is skipped, and a file gets its final name only after all of it was read back and its digest is right.
"""

import fcntl
import os
import stat
import time

from .digests import DigestCache
from .sysfiles import os_error_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

STALE_PARTIAL_S = 30 * 86400.0  # nobody came back to finish it
UNUSED_S = 30 * 86400.0  # nobody asked for it since: whoever wants it brings it again
_DAY_S = 86400.0
_HEX = frozenset("0123456789abcdef")
_READ_BYTES = 1 << 20


def check_digest(text: "Any") -> str:
    """A digest that becomes a file's name."""
    if not isinstance(text, str) or len(text) != 64 or not _HEX.issuperset(text):
        raise ValueError(f"not a SHA-256 in lower case: {text!r}")
    return text


class Store:
    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, "store")
        self._digests = DigestCache(state_dir)

    def look(self, wanted: "Sequence[Sequence[Any]]") -> "dict[str, Any]":
        """What is there of each ``(digest, size in bytes or None)``, and how much room the file system has.

        A file of another size is not whole: its file system lost a part of it."""
        found = []
        folder = self._open()
        try:
            for digest, size in wanted:
                name = check_digest(digest)
                whole = _status(folder, name)
                entry = {"sha256": name, "whole": False}  # type: dict[str, Any]
                if whole is not None and (size is None or whole.st_size == size):
                    if time.time() - whole.st_mtime > _DAY_S:
                        os.utime(name, dir_fd=folder)
                        self._digests.keep(whole, os.stat(name, dir_fd=folder))
                    entry.update(whole=True, size_bytes=whole.st_size, executable=bool(whole.st_mode & 0o111))
                else:
                    partial = _status(folder, name + ".part")
                    entry["have"] = partial.st_size if partial is not None else 0
                found.append(entry)
            self._forget_stale(folder, {entry["sha256"] for entry in found})
            room = os.fstatvfs(folder)
        finally:
            os.close(folder)
        return {"path": self.path, "free_bytes": room.f_bavail * room.f_frsize, "found": found}

    def append(self, digest: str, size: int, offset: int, data: bytes) -> "dict[str, Any]":
        """Write what the partial lacks of ``data``, which lies at ``offset`` of the file; ``have`` says how long it is
        now. ``busy``: another front is just verifying it."""
        name = check_digest(digest)
        folder = self._open()
        try:
            whole = _status(folder, name)
            if whole is not None and whole.st_size == size:
                return {"have": size}
            fd = self._take(folder, name, create=True)
            if fd is None:
                return {"busy": True}
            try:
                have = os.fstat(fd).st_size
                if offset <= have < offset + len(data):
                    view = memoryview(data)[have - offset :]
                    while view:
                        written = os.pwrite(fd, view, have)
                        have += written
                        view = view[written:]
                return {"have": have}
            finally:
                os.close(fd)
        finally:
            os.close(folder)

    def commit(self, digest: str, size: int, executable: bool) -> "dict[str, Any]":
        """Verify the partial and give it its final name, read-only. A wrong one is thrown away: ``wrong`` says what it
        was. Run it in a job: it reads the whole file."""
        name = check_digest(digest)
        folder = self._open()
        try:
            whole = _status(folder, name)
            if whole is not None and whole.st_size == size:
                if executable and not whole.st_mode & 0o111:
                    os.chmod(name, 0o555, dir_fd=folder)
                    self._digests.keep(whole, os.stat(name, dir_fd=folder))
                return {"path": os.path.join(self.path, name)}
            fd = self._take(folder, name, create=size == 0)  # of an empty file there is no piece that makes it
            if fd is None:
                return {"busy": True} if _status(folder, name + ".part") is not None else {"absent": True}
            try:
                have = os.fstat(fd).st_size
                if have < size:
                    return {"short": True, "have": have}
                seen = _digest_of(fd) if have == size else f"a file of {have} bytes"
                if seen != name:
                    os.unlink(name + ".part", dir_fd=folder)
                    return {"wrong": seen}
                os.fchmod(fd, 0o555 if executable else 0o444)
                os.fsync(fd)
                os.rename(name + ".part", name, src_dir_fd=folder, dst_dir_fd=folder)
                os.fsync(folder)
                self._digests.vouch(os.fstat(fd), name)  # a run that looks at 8 GB first would read them again
            finally:
                os.close(fd)
        finally:
            os.close(folder)
        return {"path": os.path.join(self.path, name)}

    def _open(self) -> int:
        """The folder, ours alone: below a folder that others may write to, nobody's files are taken for ours."""
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            pass
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            if status.st_uid != os.geteuid():
                raise PermissionError(13, "belongs to another user", self.path)
            if stat.S_IMODE(status.st_mode) != 0o700:
                os.fchmod(fd, 0o700)
        except OSError:
            os.close(fd)
            raise
        return fd

    @staticmethod
    def _take(folder: int, name: str, create: bool) -> "int | None":
        """The partial, locked; None: it is absent, or somebody else works on it."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        while True:
            try:
                fd = os.open(name + ".part", flags, 0o600, dir_fd=folder)
            except FileNotFoundError:
                return None
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise PermissionError(1, "is no file", name + ".part")
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Between the two another front may have given it its final name: that file is not written to any more.
                now = _status(folder, name + ".part")
                if now is not None and os.path.samestat(now, os.fstat(fd)):
                    return fd
            except BlockingIOError:
                os.close(fd)
                return None
            except OSError:
                os.close(fd)
                raise
            os.close(fd)

    @staticmethod
    def _forget_stale(folder: int, wanted: "set[str]") -> None:
        for name in os.listdir(folder):
            status = _status(folder, name) if name[:64] not in wanted else None  # what is wanted now is in use
            limit_s = STALE_PARTIAL_S if name.endswith(".part") else UNUSED_S
            if status is not None and time.time() - status.st_mtime > limit_s:
                os.unlink(name, dir_fd=folder)


def told(work: "Callable[[], dict[str, Any]]") -> "tuple[dict[str, Any], bytes]":
    """The answer of a job; what the file system refused is told in the protocol's words."""
    try:
        return work(), b""
    except OSError as error:
        return {"error": os_error_code(error), "errno": error.errno, "detail": str(error)}, b""


def _status(folder: int, name: str) -> "os.stat_result | None":
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _digest_of(fd: int) -> str:
    import hashlib  # brings OpenSSL along (3 MB): only here, in a job of its own

    digest = hashlib.sha256()
    at = 0
    while True:
        piece = os.pread(fd, _READ_BYTES, at)
        if not piece:
            return digest.hexdigest()
        digest.update(piece)
        at += len(piece)
