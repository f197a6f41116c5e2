"""A process: how one is started, watched, found by its traces and proven to be gone."""

import os
import select
import signal
import time

from .capture import Capture
from .clocks import process_start
from .sysfiles import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

COOKIE_NAME = "SIDEWINDER_RUN_COOKIE"
HAS_PROC = os.path.isdir("/proc/self/fd")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Those that we or Python ignore; what has a handler gets its default back by exec itself.
_RESET_SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE] + (
    [signal.SIGXFSZ] if hasattr(signal, "SIGXFSZ") else []
)
_libc = []  # type: list[Any]


def load_libc() -> "Any":
    """libc by ctypes, or None where Python was built without it. Loaded once, before the first fork."""
    if not _libc:
        try:
            import ctypes

            _libc.append(ctypes.CDLL(None) if HAS_PROC else None)
        except (ImportError, OSError):
            _libc.append(None)
    return _libc[0]


def _prctl(option: int, value: int) -> bool:
    libc = load_libc()
    return libc is not None and libc.prctl(option, value, 0, 0, 0) == 0


def become_subreaper() -> bool:
    """From now on every orphan among our descendants becomes our child: none can hide. False: not to be had here."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, signum: int = signal.SIGKILL) -> None:
    if _prctl(_PR_SET_PDEATHSIG, signum) and os.getppid() != parent:
        os._exit(127)  # the parent died before we asked to follow it


class SpawnError(Exception):
    """An executable that could not be started: ``code`` is ``not_found``, ``not_executable``, ``bad_cwd`` or ``os``."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def spawn(
    argv: "Sequence[str]",
    stdio: "tuple[int, int, int]",
    env: "dict[str, str] | None" = None,
    cwd: "str | None" = None,
    keep: "Collection[int]" = (),
    preferred_oom_victim: bool = False,
) -> int:
    """Start ``argv`` in a session of its own, dying with us, with these three descriptors and ``keep``; its pid.

    Plain fork and exec: ``subprocess`` with a ``preexec_fn`` costs twice as long and 2 MB.
    """
    parent = os.getpid()
    environment = dict(os.environ) if env is None else env
    program = find_program(argv[0], environment)  # `execvpe` would search, and import, in the child
    reader, writer = os.pipe()  # both close on exec: the end of the file says that exec went well
    pid = os.fork()
    if pid == 0:
        stage = b"cwd"
        try:
            os.close(reader)
            os.setsid()
            for signum in _RESET_SIGNALS:
                signal.signal(signum, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            die_with_parent(parent)
            if preferred_oom_victim:
                _offer_to_oom_killer()
            if cwd is not None:
                os.chdir(cwd)
            stage = b"exec"
            # First out of the way, then into place: a source may itself be 0, 1 or 2.
            sources = [os.dup(fd) for fd in stdio]
            for target, source in enumerate(sources):
                os.dup2(source, target)
            for fd in keep:
                os.set_inheritable(fd, True)
            os.execve(program, list(argv), environment)
        except OSError as error:
            os.write(writer, b"%s %d" % (stage, error.errno or 0))
        except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
            os.write(writer, b"exec 0 " + repr(error).encode())
        finally:
            os._exit(127)
    os.close(writer)
    try:
        report = os.read(reader, 4096)
    finally:
        os.close(reader)
    if report:
        os.waitpid(pid, 0)
        raise _spawn_error(report, argv[0], cwd)
    return pid


def find_program(name: str, env: "dict[str, str]") -> str:
    """The first executable of that name on PATH; the name itself where it is a path or nothing was found."""
    if "/" in name:
        return name
    for folder in (env.get("PATH") or os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    return name


def _offer_to_oom_killer() -> None:
    # When memory runs out the measured process shall go, not the runner that has to tell about it.
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"500")
        finally:
            os.close(fd)
    except OSError:
        pass


def _spawn_error(report: bytes, program: str, cwd: "str | None") -> SpawnError:
    import errno

    stage, number, rest = (report + b"  ").split(b" ", 2)
    reason = os.strerror(int(number)) if int(number) else rest.strip().decode("utf-8", "replace")
    if stage == b"cwd":
        return SpawnError("bad_cwd", f"cannot enter the folder {cwd}: {reason}")
    if int(number) == errno.ENOENT:
        if os.path.exists(program):
            return SpawnError("not_executable", f"{program}: the interpreter that it names is not on this device")
        return SpawnError("not_found", f"{program}: no such program on this device")
    code = "not_executable" if int(number) in (errno.EACCES, errno.ENOEXEC, errno.EISDIR) else "os"
    return SpawnError(code, f"{program}: {reason}")


def exit_code(status: int) -> int:
    """What ``wait`` said as a return code: negative for a signal."""
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def run_command(
    argv: "Sequence[str]",
    stdin: bytes = b"",
    timeout_s: float = 60.0,
    env: "dict[str, str] | None" = None,
    cwd: "str | None" = None,
    cap_bytes: int = 2097152,
    between: "Callable[[], object] | None" = None,
    watch: "Callable[[int], object] | None" = None,
) -> "tuple[int | None, Capture, Capture]":
    """Run a short command to its end: (return code or None after the time-out, stdout, stderr). May raise SpawnError.

    ``between`` is called at least every 0.2 s; ``watch`` is told the pid.
    """
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    parents = [in_write, out_read, err_read]
    try:
        try:
            pid = spawn(argv, (in_read, out_write, err_write), env=env, cwd=cwd)
        finally:
            for fd in (in_read, out_write, err_write):
                os.close(fd)
        if watch is not None:
            watch(pid)
        return _converse(pid, in_write, out_read, err_read, parents, stdin, timeout_s, cap_bytes, between)
    finally:
        for fd in parents:
            os.close(fd)


def _converse(
    pid: int,
    in_write: int,
    out_read: int,
    err_read: int,
    open_fds: "list[int]",
    stdin: bytes,
    timeout_s: float,
    cap_bytes: int,
    between: "Callable[[], object] | None",
) -> "tuple[int | None, Capture, Capture]":
    out, err = Capture(cap_bytes), Capture(cap_bytes)
    end_s = time.monotonic() + timeout_s
    pending = memoryview(stdin)
    os.set_blocking(in_write, False)
    poll = select.poll()
    for fd in (out_read, err_read):
        poll.register(fd, select.POLLIN)
    if pending:
        poll.register(in_write, select.POLLOUT)
    else:
        open_fds.remove(in_write)
        os.close(in_write)
    streams = {out_read: out, err_read: err}
    returncode = None  # type: int | None
    ended = False
    try:
        while True:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return None, out, err
            ready = poll.poll(min(left_s, 0.2) * 1000) if streams else []
            for fd, _events in ready:
                if fd == in_write:
                    try:
                        pending = pending[os.write(fd, pending[:65536]) :]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        pending = pending[:0]
                    if not pending:
                        poll.unregister(fd)
                        open_fds.remove(fd)
                        os.close(fd)
                else:
                    data = os.read(fd, 65536)
                    streams[fd].add(data)
                    if not data:
                        del streams[fd]
                        poll.unregister(fd)
            if not ended:
                waited, status = os.waitpid(pid, os.WNOHANG)
                if waited:
                    ended, returncode = True, exit_code(status)
                    end_s = min(end_s, time.monotonic() + 1.0)  # a daemon that it left may keep its pipes open
            if ended and (not ready or not streams):
                return returncode, out, err
            if not streams:
                time.sleep(0.002)
            if between is not None:
                between()
    finally:
        if not ended:
            for kill in (os.killpg, os.kill):
                try:
                    kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            os.waitpid(pid, 0)


def command_output(argv: "Sequence[str]", timeout_s: float = 10.0) -> "str | None":
    """What a command says on stdout, None when it is not there or fails."""
    try:
        returncode, out, _err = run_command(argv, timeout_s=timeout_s)
    except SpawnError:
        return None
    return bytes(out.head).decode("utf-8", "replace") if returncode == 0 else None


def process_table() -> "list[tuple[int, int, int, int]]":
    """(pid, parent, session, start ticks) of every live process; empty where there is no /proc."""
    table = []  # type: list[tuple[int, int, int, int]]
    if not HAS_PROC:
        return table
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        text = read_text(f"/proc/{name}/stat")
        if not text:
            continue
        try:
            fields = text.rsplit(")", 1)[1].split()
            if fields[0] not in "ZX":
                table.append((int(name), int(fields[1]), int(fields[3]), int(fields[19])))
        except (IndexError, ValueError):
            continue  # it ended while we read
    return table


def _carries(pid: int, cookie: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{COOKIE_NAME}={cookie}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def traces_of_run(
    cookie: str,
    leader: "int | None",
    leader_start: "int | None",
    ancestor: "int | None" = None,
    skip: "Collection[int]" = (),
) -> "list[int]":
    """Live processes of a run: its cookie in their environment, its session, or ``ancestor`` above them.

    The cookie is random per start: with the run id in its place two lab devices on one host killed each other's runs.
    """
    table = process_table()
    parents = {pid: parent for pid, parent, _session, _start in table}
    me = os.getpid()
    session_is_ours = leader is not None and process_start(leader) in (None, leader_start)  # else: the pid was reused
    found = []
    for pid, parent, session, start in table:
        if pid == me or pid in skip:
            continue
        hit = session_is_ours and session == leader and leader_start is not None and start >= leader_start
        if not hit and ancestor is not None:
            seen = set()  # type: set[int]
            while parent not in (0, 1, ancestor) and parent not in seen:
                seen.add(parent)
                parent = parents.get(parent, 0)
            hit = parent == ancestor
        if hit or _carries(pid, cookie):
            found.append(pid)
    return found


def kill_quietly(pids: "Collection[int]", signum: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, signum)
        except OSError:
            pass  # it ended by itself in the meantime


def close_all_but(keep: "Collection[int]") -> None:
    fds = [int(name) for name in os.listdir("/proc/self/fd")] if HAS_PROC else list(range(3, 1024))
    for fd in fds:
        if fd not in keep:
            try:
                os.close(fd)
            except OSError:
                pass
