"""The run folder's lock: who may write records here.

Either one controller (a sweep), or any number of ``sidewinder measure`` that Snakemake's own executor started; a slot
on the device keeps those apart where it matters. Two proofs are asked for before anybody is called dead: the kernel's
``flock`` (dropped at death, also by ``kill -9``) and the written name of the holder (which holds across hosts, where a
network file system may not pass ``flock`` on). The lock file is never removed: unlinking a locked file lets two in.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from sidewinder.errors import LockHeld, PublishError

from . import atomic
from .holder import Holder
from .layout import RunFolder

_WIDTH_BYTES: Final = 512  # one write of one sector: never seen half
_NO_FLOCK: Final = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})


class ControllerLock:
    """The lock of one run folder. ``took_over`` names the dead controller whose place was taken, if there was one."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = RunFolder(folder).lock
        self.took_over: Holder | None = None
        self._fd: int | None = None
        self._member: str | None = None

    def acquire(self, *, shared: bool = False) -> Self:
        """Take the lock now or raise ``LockHeld``; never waits. ``shared``: one of several ``sidewinder measure``.

        The exclusive holder starts clean: temps of dead controllers are swept. ``PublishError`` tells, before anything
        is measured, that the folder cannot be written.
        """
        if self._fd is not None:
            raise LockHeld(f"run folder {self.folder} is already locked by this very object")
        fd = _open(self.path)
        try:
            _flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.folder, self.path)
            written = _read(fd)
            if written is not None and not written.is_provably_dead():
                raise _held(self.folder, written)
            for member in [] if shared else list(_members(self.path)):
                if not member.holder.is_provably_dead():
                    raise _held(self.folder, member.holder)
                _forget(member.path)
            if shared:
                self._member = _register(self.path, Holder.me("sidewinder measure"))
            else:
                atomic.sweep(self.folder)
                _write(fd, Holder.me().encode(), self.path)
                self.took_over = written
        except BaseException:
            os.close(fd)  # drops the flock too
            raise
        self._fd = fd
        return self

    def release(self) -> None:
        """Give it back. Harmless when it is not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            if self._member is not None:
                _forget(self._member)
                self._member = None
            else:
                with contextlib.suppress(PublishError):  # a disk that broke meanwhile: our death will prove the same
                    _write(fd, b"", self.path)
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        return self if self._fd is not None else self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def holders(folder: str) -> list[Holder]:
    """Everybody whose name stands in the lock, alive or not: for doctor and unlock."""
    path = RunFolder(folder).lock
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return []
    try:
        written = _read(fd)
    finally:
        os.close(fd)
    return ([written] if written is not None else []) + [member.holder for member in _members(path)]


def break_lock(folder: str) -> list[Holder]:
    """Strike out holders that cannot be judged from here (another host), because a person said that they are gone.

    Returns whom. Raises ``LockHeld`` while one of them is seen to live: that one is to be stopped, not struck out.
    """
    path = RunFolder(folder).lock
    if not os.path.exists(path):
        return []
    fd = _open(path)
    try:
        _flock(fd, fcntl.LOCK_EX, folder, path)
        struck = []
        written = _read(fd)
        if written is not None:
            _refuse_alive(folder, written)
            struck.append(written)
            _write(fd, b"", path)
        for member in list(_members(path)):
            _refuse_alive(folder, member.holder)
            struck.append(member.holder)
            _forget(member.path)
        return struck
    finally:
        os.close(fd)


def _refuse_alive(folder: str, holder: Holder) -> None:
    if holder.is_here() and not holder.is_provably_dead():
        raise _held(folder, holder)


class _Member:
    """One ``sidewinder measure`` that shares the lock, by the file that names it."""

    __slots__ = ("holder", "path")

    def __init__(self, path: str, holder: Holder) -> None:
        self.path, self.holder = path, holder


def _members_folder(path: str) -> str:
    return f"{path}.shared"


def _members(path: str) -> Iterator[_Member]:
    try:
        names = sorted(os.listdir(_members_folder(path)))
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        member = os.path.join(_members_folder(path), name)
        try:
            with open(member, "rb") as file:
                holder = Holder.parse(file.read())
        except FileNotFoundError:
            continue  # it ended while we looked
        if holder is None or atomic.is_temp(name):
            # Never whole: its writer held the flock, which we hold now, so it died in between.
            _forget(member)
        else:
            yield _Member(member, holder)


def _register(path: str, me: Holder) -> str:
    member = os.path.join(_members_folder(path), f"{me.host[:100]}-{me.pid}-{os.urandom(3).hex()}.json")
    atomic.publish(member, me.encode(), sync=False, what="lock entry")
    return member


def _forget(member: str) -> None:
    with contextlib.suppress(OSError):  # a read-only disk by now; the next one sees that its process is dead
        os.unlink(member)


def _open(path: str) -> int:
    try:
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            atomic.make_folder(os.path.dirname(path))
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise atomic.publish_error("lock", path, error) from error


def _flock(fd: int, kind: int, folder: str, path: str) -> None:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _read(fd) or next((member.holder for member in _peek(path)), None)
        raise _held(folder, holder, locked=True) from error
    except OSError as error:
        if error.errno in _NO_FLOCK:
            raise PublishError(
                f"the file system of {folder} has no file locks (flock: {error.strerror}), so that two controllers "
                "could not be kept apart; choose an output_dir on a file system that has them"
            ) from error
        raise atomic.publish_error("lock", path, error) from error


def _peek(path: str) -> Iterator[_Member]:
    """The members, without tidying up: somebody else holds the lock."""
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(_members_folder(path))):
            with contextlib.suppress(OSError), open(os.path.join(_members_folder(path), name), "rb") as file:
                if (holder := Holder.parse(file.read())) is not None and not holder.is_provably_dead():
                    yield _Member(name, holder)


def _read(fd: int) -> Holder | None:
    return Holder.parse(os.pread(fd, _WIDTH_BYTES, 0).rstrip())


def _write(fd: int, text: bytes, path: str) -> None:
    """Overwritten in place and padded: cutting it to length first would leave a moment without a name."""
    try:
        os.pwrite(fd, text[: _WIDTH_BYTES - 1].ljust(_WIDTH_BYTES - 1) + b"\n", 0)
        os.fsync(fd)  # so that another host sees the name
    except OSError as error:
        raise atomic.publish_error("lock", path, error) from error


def _held(folder: str, holder: Holder | None, *, locked: bool = False) -> LockHeld:
    """The refusal, with the one command that helps in this very case."""
    if holder is None:
        return LockHeld(f"run folder {folder} is just being taken by another controller; run the same command again")
    if holder.is_here():
        wait = f"wait for it, or stop it with: kill {holder.pid}"
        return LockHeld(f"run folder {folder} is held by {holder}; {wait}")
    seen = "its lock is alive" if locked else "from here nobody can see whether it still runs"
    advice = (
        f"stop it there (kill {holder.pid})"
        if locked
        else f"if it is gone for good, run: sidewinder unlock {shlex.quote(folder)}"
    )
    return LockHeld(f"run folder {folder} is held by {holder}; {seen}; {advice}")
