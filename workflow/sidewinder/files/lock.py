"""The run folder's lock: who may write records here.

Either one controller (a sweep), or any number of ``sidewinder measure`` that Snakemake's own executor started; a slot
on the device keeps those apart where it matters. Two proofs are asked for before anybody is called dead: the kernel's
``flock`` (dropped at death, also by ``kill -9``) and the written name of the holder (which holds across hosts, where a
network file system may not pass ``flock`` on). A holder on another host lives while its heartbeat moves
(``heartbeat.py``). The lock file is never removed: unlinking a locked file lets two in.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from sidewinder.errors import LockHeld, PublishError

from . import atomic, heartbeat
from .heartbeat import Clock, Heart, Pause
from .holder import Holder
from .layout import RunFolder

_WIDTH_BYTES: Final = 512  # one write of one sector: never seen half
SETTLE_S = 2.0  # two who take over at once: the one who wrote last is named by then
_NO_FLOCK: Final = frozenset({errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK})


Announce = Callable[[str], None]


class ControllerLock:
    """The lock of one run folder. ``took_over`` names the dead controller whose place was taken, if there was one."""

    def __init__(self, folder: str, *, now: Clock = time.monotonic, pause: Pause = time.sleep) -> None:
        self.folder = folder
        self.path = RunFolder(folder).lock
        self.took_over: Holder | None = None
        self._now, self._pause = now, pause
        self._fd: int | None = None
        self._member: str | None = None
        self._me: Holder | None = None
        self._heart: Heart | None = None

    def acquire(self, *, shared: bool = False, announce: Announce | None = None) -> Self:
        """Take the lock now or raise ``LockHeld``. ``shared``: one of several ``sidewinder measure``.

        It waits for one thing only, and says so to ``announce`` first (None: it does not wait at all): whether the
        heartbeat of a holder on another host moves. One that stands still for ``heartbeat.WATCH_S`` is taken over.

        The exclusive holder starts clean: temps of dead controllers are swept. ``PublishError`` tells, before anything
        is measured, that the folder cannot be written.
        """
        if self._fd is not None:
            raise LockHeld(f"run folder {self.folder} is already locked by this very object")
        fd = _open(self.path)
        try:
            _flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, self.folder, self.path)
            written = _read(fd)
            named = [] if written is None else [_Member(self.path, written)]
            members = [] if shared else list(_members(self.path))
            strangers = [one for one in (*named, *members) if not one.holder.is_provably_dead()]
            if strangers:
                self._outlive(strangers, announce)
                if _read_path(self.path) != written:
                    raise _held(self.folder, _read_path(self.path))  # another host has watched as long as we did
            for member in members:
                _forget(member.path)
            if shared:
                self._me = Holder.me("sidewinder measure")
                if strangers:
                    _write(fd, b"", self.path)
                self._member = _register(self.path, self._me)
            else:
                atomic.sweep(self.folder)
                self._me = Holder.me()
                _write(fd, self._me.encode(), self.path)
                self.took_over = written or (strangers[0].holder if strangers else None)
                if strangers:
                    self._settle()
        except BaseException:
            os.close(fd)  # drops the flock too
            raise
        self._fd = fd
        self._heart = Heart(self._member or self.path, self.is_mine)
        self._heart.start()
        return self

    def _outlive(self, strangers: list[_Member], announce: Announce | None) -> None:
        """Returns when all of them are to be taken for dead. ``LockHeld`` when one lives, or cannot be judged."""
        first = strangers[0].holder
        for one in strangers:
            if one.holder.is_here() or announce is None or heartbeat.read(one.path) is None:
                raise _held(self.folder, one.holder)
        assert announce is not None
        announce(
            f"run folder {self.folder} is held by {first}. Whether it still runs is seen by its heartbeat only: it is "
            f"watched for up to {heartbeat.WATCH_S:g} s, and taken over if it stands still"
        )
        alive = heartbeat.moving([one.path for one in strangers], self._now, self._pause, heartbeat.WATCH_S)
        for one in strangers:
            if one.path == alive:
                raise _held(self.folder, _read_path(one.path) or one.holder, moves=True)
        announce(f"the heartbeat of {first} stood still for {heartbeat.WATCH_S:g} s: run folder {self.folder} is taken")

    def _settle(self) -> None:
        """Another host may have done just the same in this very moment, where ``flock`` is not passed on."""
        self._pause(SETTLE_S)
        now = _read_path(self.path)
        if now != self._me:
            raise _held(self.folder, now)

    def is_mine(self) -> bool:
        """Whether nobody has taken it over from us: a machine that slept, or was cut off from its network folder, has
        no heartbeat meanwhile."""
        if self._me is None:
            return False
        if self._member is not None:
            return os.path.exists(self._member)
        return _read_path(self.path) == self._me

    def release(self) -> None:
        """Give it back. Harmless when it is not held."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        heart, self._heart = self._heart, None
        is_mine = self.is_mine()
        if heart is not None:
            heart.stop(remove=is_mine)
        try:
            if self._member is not None:
                _forget(self._member)
                self._member = None
            elif is_mine:
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


def break_lock(
    folder: str, announce: Announce | None = None, *, now: Clock = time.monotonic, pause: Pause = time.sleep
) -> list[Holder]:
    """Strike out holders that cannot be judged from here (another host), because a person said that they are gone.

    Returns whom. Raises ``LockHeld`` while one of them is seen to live: that one is to be stopped, not struck out.
    ``announce``: told before heartbeats are watched; None: they are not.
    """
    path = RunFolder(folder).lock
    if not os.path.exists(path):
        return []
    fd = _open(path)
    try:
        _flock(fd, fcntl.LOCK_EX, folder, path)
        written = _read(fd)
        named = [_Member(path, written)] if written is not None else []
        members = list(_members(path))
        for one in (*named, *members):
            _refuse_alive(folder, one.holder)
        beating = [one for one in (*named, *members) if not one.holder.is_here() and heartbeat.read(one.path)]
        if beating and announce is not None:
            announce(f"watching for up to {heartbeat.WATCH_S:g} s whether {beating[0].holder} still lives")
            alive = heartbeat.moving([one.path for one in beating], now, pause, heartbeat.WATCH_S)
            for one in beating:
                if one.path == alive:
                    raise _held(folder, one.holder, moves=True)
        if named:
            _write(fd, b"", path)
            heartbeat.forget(path)
        for member in members:
            _forget(member.path)
        return [one.holder for one in (*named, *members)]
    finally:
        os.close(fd)


def _refuse_alive(folder: str, holder: Holder) -> None:
    if holder.is_here() and not holder.is_provably_dead():
        raise _held(folder, holder)


class _Member:
    """One holder by the file that names it: the lock's own, or one of those of ``sidewinder measure``."""

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
        if name.endswith(heartbeat.beat_file("")):
            continue
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
    heartbeat.forget(member)


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


def _read_path(path: str) -> Holder | None:
    """Opened anew, so that a network file system looks again."""
    try:
        with open(path, "rb") as file:
            return Holder.parse(file.read(_WIDTH_BYTES).rstrip())
    except OSError:
        return None


def _read(fd: int) -> Holder | None:
    return Holder.parse(os.pread(fd, _WIDTH_BYTES, 0).rstrip())


def _write(fd: int, text: bytes, path: str) -> None:
    """Overwritten in place and padded: cutting it to length first would leave a moment without a name."""
    try:
        os.pwrite(fd, text[: _WIDTH_BYTES - 1].ljust(_WIDTH_BYTES - 1) + b"\n", 0)
        os.fsync(fd)  # so that another host sees the name
    except OSError as error:
        raise atomic.publish_error("lock", path, error) from error


def _held(folder: str, holder: Holder | None, *, locked: bool = False, moves: bool = False) -> LockHeld:
    """The refusal, with the one command that helps in this very case."""
    if holder is None:
        return LockHeld(f"run folder {folder} is just being taken by another controller; run the same command again")
    if holder.is_here():
        wait = f"wait for it, or stop it with: kill {holder.pid}"
        return LockHeld(f"run folder {folder} is held by {holder}; {wait}")
    if moves:
        seen = "its heartbeat moves, so it runs"
    else:
        seen = "its lock is alive" if locked else "from here nobody can see whether it still runs"
    advice = (
        f"wait for it, or stop it there (kill {holder.pid})"
        if locked or moves
        else f"if it is gone for good, run: sidewinder unlock {shlex.quote(folder)}"
    )
    return LockHeld(f"run folder {folder} is held by {holder}; {seen}; {advice}")
