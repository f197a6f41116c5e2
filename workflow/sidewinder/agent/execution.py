"""An execution: what a job does on the device for the controller — look, run a short command, end a run for good."""

import os
import signal
import socket
import stat
import time

from .jobs import note_job_command
from .prepare import undo_after_kill
from .processes import SpawnError, kill_quietly, run_command, traces_of_run
from .slots import SlotLock
from .sysfiles import expand_path, remove_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .records import Key, RecordStore


def look(paths: "Sequence[str]") -> "list[dict[str, Any]]":
    """Kind, size, mtime of each path; ``unknown`` where the device could not look, which is not ``absent``."""
    found = []
    for path in paths:
        real = expand_path(path)
        entry = {"path": path, "real": real}  # type: dict[str, Any]
        try:
            status = os.stat(real)
        except (FileNotFoundError, NotADirectoryError):
            entry["kind"] = "absent"
        except OSError as error:
            entry.update(kind="unknown", detail=error.strerror)
        else:
            mode = status.st_mode
            entry["kind"] = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
            entry.update(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, executable=os.access(real, os.X_OK))
        found.append(entry)
    return found


def execute(message: "dict[str, Any]", stdin: bytes) -> "tuple[dict[str, Any], bytes]":
    """A short command that is not measured."""
    environment = dict(os.environ)
    environment.update(message.get("env") or {})
    argv = [str(word) for word in message["argv"]]
    argv[0] = expand_path(argv[0])
    try:
        returncode, out, err = run_command(
            argv, stdin=stdin, timeout_s=float(message["timeout_s"]), env=environment, watch=note_job_command
        )
    except SpawnError as error:
        return {"spawn_error": error.code, "detail": error.detail}, b""
    blob = bytes(out.head) + out.tail + bytes(err.head) + err.tail
    return {"returncode": returncode, "stdout": out.sizes(), "stderr": err.sizes()}, blob


def kill_and_prove(store: "RecordStore", key: "Key", boot: str, wait_s: float) -> "dict[str, Any]":
    """End an attempt, however it lives, and say whether it is proven dead: only then may another start.

    Proof is a changed boot id, or the slot's lock: whoever inherited it is gone when it can be had (or when somebody
    else signed it since).
    """
    store.raise_highest(key)  # a `start` of this attempt that still lies in some buffer comes too late now
    meta = store.meta(key)
    if meta is None:
        return {"dead": not store.exists(key), "via": "no_record"}
    scratch = os.path.join(store.folder(key), "work")  # a killed runner could not remove it
    if meta.get("boot_id") != boot:
        remove_tree(scratch)
        return {"dead": True, "via": "rebooted"}
    end_s = time.monotonic() + wait_s
    via = "ended" if store.has_result(key) else "sweep"
    if not store.has_result(key) and _ask_runner(store.folder(key), wait_s / 2):  # the other half is for the sweep
        via = "runner"
    proc = store.proc(key)
    killed = set()  # type: set[int]
    lock = SlotLock(store.state_dir, meta["lock"], meta["slot"])
    while True:
        alive = [pid for pid in [proc.get("runner")] if via == "sweep" and pid and _is_runner(pid, proc)]
        left = traces_of_run(meta["cookie"], proc.get("leader"), proc.get("leader_start")) + alive
        kill_quietly(left, signal.SIGKILL)
        killed.update(left)
        if not left:
            fd = lock.try_take(0.0)
            if fd is not None:
                os.close(fd)
                break
            holder = lock.holder() or {}
            if holder and (holder.get("campaign"), holder.get("run_id"), holder.get("n")) != key:
                break
        if time.monotonic() >= end_s:
            detail = f"slot lock {lock.path} is still held by a process that cannot be found"
            return {"dead": False, "via": via, "killed": sorted(killed), "detail": detail}
        time.sleep(0.02)
    remove_tree(scratch)
    answer = {"dead": True, "via": via, "killed": sorted(killed)}  # type: dict[str, Any]
    restored = undo_after_kill(store.folder(key))
    if restored is not None:
        answer["restored"] = restored
    return answer


def _ask_runner(folder: str, wait_s: float) -> bool:
    """Tell the runner to stop and wait for its end; False when it is not there or does not end in time."""
    end_s = time.monotonic() + wait_s
    from .links import connect_to

    connection = connect_to(folder)
    if connection is None:
        return False
    try:
        connection.setblocking(True)
        connection.sendall(b"stop\n")
        while True:
            connection.settimeout(max(0.01, end_s - time.monotonic()))
            if not connection.recv(4096):
                return True
    except socket.timeout:
        return False
    except OSError:
        return True
    finally:
        connection.close()


def _is_runner(pid: int, proc: "dict[str, Any]") -> bool:
    from .clocks import process_start

    start = process_start(pid)
    return start is not None and start == proc.get("runner_start")
