"""A launch: the way from a ``start`` frame to a detached runner, each step of it complete or without trace."""

import errno
import gc
import os
import socket

from .cgroups import own_cgroup
from .links import listen_in
from .processes import close_all_but, load_libc
from .runner import RESULT_ROOM_BYTES, Runner
from .slots import SlotLock
from .sysfiles import create_json, os_error_code, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .records import Key, RecordStore

_LOCK_WAIT_S = 0.25  # between a runner's last word and its end; the front is deaf meanwhile


def launch(
    store: "RecordStore",
    options: "dict[str, Any]",
    key: "Key",
    message: "dict[str, Any]",
    stdin: bytes,
    boot: str,
) -> "tuple[dict[str, Any], tuple[int, socket.socket] | None]":
    """(answer, the runner's pid and the connection to it; None when nothing was started)."""
    load_libc()  # before the fork: the runner finds it loaded, and its control group known
    own_cgroup(str(options.get("root") or "/"))
    lock = SlotLock(store.state_dir, str(message["lock"]), int(message["slot"]))
    lock_fd = lock.try_take(_LOCK_WAIT_S)
    if lock_fd is None:
        return {"outcome": "busy", "holder": lock.holder()}, None
    draft = ""
    opened = [lock_fd]
    try:
        store.sweep_drafts(key[0])
        draft = store.draft(key)
        result_fd = _reserve_result(os.path.join(draft, "result.new"), message["task"])
        opened.append(result_fd)
        request = dict(message, cookie=os.urandom(12).hex())
        meta = {
            "campaign": key[0],
            "run_id": key[1],
            "n": key[2],
            "cookie": request["cookie"],
            "boot_id": boot,
            "client": message["client"],
            "who": message.get("who"),
            "lock": message["lock"],
            "slot": message["slot"],
            "lease_s": message["lease_s"],
            "since_utc": message.get("since_utc"),
            "keep_result_s": message["task"].get("keep_result_s"),
        }
        create_json(os.path.join(draft, "meta.json"), meta)
        lock.sign(lock_fd, dict(meta, uid=os.getuid(), cookie=None))
        listener = listen_in(draft)
        front_end, runner_end = socket.socketpair()
        folder = store.folder(key)
        store.raise_highest(key, draft)  # before the attempt is there: one that was seen is never started again
        os.rename(draft, folder)  # from here on the attempt exists
    except OSError as error:
        for fd in opened:
            os.close(fd)
        if draft:
            remove_tree(draft)
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and store.exists(key):
            return {"outcome": "exists"}, None
        return {"outcome": "error", "error": os_error_code(error), "errno": error.errno, "detail": str(error)}, None
    keep = {lock_fd, listener.fileno(), runner_end.fileno(), result_fd}
    pid = _detach(
        lambda: Runner(request, stdin, folder, lock_fd, listener, runner_end, result_fd, options).run(), keep, folder
    )
    os.close(lock_fd)
    os.close(result_fd)
    listener.close()
    runner_end.close()
    return {"outcome": "started", "state": "running", "max_attempt": key[2]}, (pid, front_end)


def _reserve_result(path: str, task: "dict[str, Any]") -> int:
    """Room for the result, had before the run: a full disk refuses a run, it does not lose one."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    room = 2 * int(task.get("output_cap_bytes", 262144)) + RESULT_ROOM_BYTES
    try:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(fd, 0, room)
                return fd
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        written = 0
        while written < room:
            written += os.pwrite(fd, b"\0" * min(65536, room - written), written)
        return fd
    except OSError:
        os.close(fd)
        raise


def _detach(run: "Callable[[], None]", keep: "set[int]", folder: str) -> int:
    """Run in a process that outlives us: own session, no terminal, no channel. Its pid, for us to reap.

    One fork, not the customary two: each copies the page tables, and then page by page what it touches.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        close_all_but({0, 1, 2} | keep)
        gc.disable()  # a collection would touch, and so copy, every page that is shared with the front
        run()
    except BaseException as error:  # noqa: BLE001  # nobody above us: leave a note and be seen as `runner_died`
        _leave_note(folder, error)
    finally:
        os._exit(0)


def _leave_note(folder: str, error: BaseException) -> None:
    import traceback

    with open(os.path.join(folder, "crash.txt"), "w") as file:
        file.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
