"""A runner: the detached process that owns one run on a device, from its slot lock to its result on disk.

It needs nobody: it ends the run at the time-out, or a lease after the last heartbeat; it proves that the tree is dead;
it writes the result into space that was reserved beforehand; and only then lets the lock go.
"""

import json
import os
import resource  # noqa: F401  # `wait4` wants it: loaded once, before the forks
import signal
import socket
import sys
import time

from .capture import Capture
from .cgroups import own_cgroup
from .clocks import boot_id, lease_clock_s, process_start, stamp, stamps_between
from .digests import DigestCache
from .evidence import Conditions, compare
from .idle import NotIdle, wait_for_idle
from .inputs import InputLost, is_stored, lay_out, not_those
from .limitwatch import LimitWatch
from .outputs import Outputs
from .prepare import Preparation
from .processes import (
    COOKIE_NAME,
    SpawnError,
    become_subreaper,
    exit_code,
    kill_quietly,
    spawn,
    traces_of_run,
)
from .pump import READABLE, WRITABLE, Pump
from .sysfiles import create_json, expand_path, os_error_code, remove_tree, write_all
from .telemetry import Sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RESULT_ROOM_BYTES = 131072  # JSON of a result, streams aside
_TREE_DEATH_S = 10.0


class Refused(Exception):
    """The run must not be measured on this device as it is."""

    def __init__(self, error: str, detail: str, state: str = "refused") -> None:
        super().__init__(detail)
        self.state = state
        self.error = error
        self.detail = detail


class EndedEarly(Exception):
    """Stopped, or the lease ran out, before the process was there."""


class Runner:
    def __init__(
        self,
        request: "dict[str, Any]",
        stdin: bytes,
        folder: str,
        lock_fd: int,
        listener: socket.socket,
        front: socket.socket,
        result_fd: int,
        options: "dict[str, Any]",
    ) -> None:
        self.request, self.stdin, self.folder = request, memoryview(stdin), folder
        self.task = request["task"]  # type: dict[str, Any]
        self.lock_fd, self.listener, self.result_fd = lock_fd, listener, result_fd
        self.root = str(options.get("root") or "/")
        self.version = str(options.get("version") or "")
        self.state_dir = str(options["state_dir"])
        self.pump = Pump()
        self.clients = {}  # type: dict[socket.socket, bytearray]
        self.stop_asked = ""
        self.lease_end_s = lease_clock_s() + request["lease_s"]
        self.deadline_s = None  # type: float | None  # monotonic; set when the process starts
        self.leader = 0
        self.leader_start = None  # type: int | None
        self.returncode = None  # type: int | None
        self.leader_gone = False
        self.usage = {}  # type: dict[str, Any]
        self.killed_by_us = False
        self.leftovers = set()  # type: set[int]
        cap = int(self.task.get("output_cap_bytes", 262144))
        self.out, self.err = Capture(cap), Capture(cap)
        self.streams = {}  # type: dict[int, Capture]
        self.stdin_fd = -1
        self.helpers = set()  # type: set[int]  # our own processes (telemetry), not the run's
        self.sampler = None  # type: Sampler | None
        self.scratch = None  # type: str | None
        self.evidence = {}  # type: dict[str, Any]
        self.started_ns = 0
        self._watch_signals()
        self.subreaper = become_subreaper()
        self.pump.add(listener.fileno(), READABLE, self._accept)
        self._serve(front)

    # -- what may happen at any time ---------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        self.wake_read, wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # like SIGINT and SIGPIPE, which the front ignores already
        signal.signal(signal.SIGTERM, self._on_sigterm)
        self.pump.add(self.wake_read, READABLE, self._on_wake)

    def _on_sigterm(self, *_: object) -> None:
        self.stop_asked = self.stop_asked or "signal"

    def _on_wake(self) -> None:
        try:
            while os.read(self.wake_read, 512):
                pass
        except BlockingIOError:
            pass
        if self.leader:
            self._reap()

    def _accept(self) -> None:
        client, _ = self.listener.accept()
        self._serve(client)
        self._renew_lease()

    def _serve(self, client: socket.socket) -> None:
        client.setblocking(False)
        self.clients[client] = bytearray()
        self.pump.add(client.fileno(), READABLE, lambda: self._hear(client))

    def _renew_lease(self) -> None:
        self.lease_end_s = lease_clock_s() + self.request["lease_s"]

    def _hear(self, client: socket.socket) -> None:
        try:
            data = client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.pump.remove(client.fileno())
            del self.clients[client]
            client.close()
            return
        heard = self.clients[client]
        heard += data
        while b"\n" in heard:
            word, _, rest = bytes(heard).partition(b"\n")
            heard[:] = rest
            if word == b"hb":
                self._renew_lease()
                try:
                    client.send(b"%d\n" % (self.out.total_bytes + self.err.total_bytes))
                except OSError:
                    pass  # a front that does not read its answers will see the run end or ask again
            elif word == b"stop":
                self.stop_asked = self.stop_asked or "asked"

    def _why_end(self) -> str:
        if self.stop_asked:
            return "stopped"
        if self.deadline_s is not None and time.monotonic() >= self.deadline_s:
            return "timeout"
        if lease_clock_s() >= self.lease_end_s:
            return "lease_expired"
        return ""

    def _turn(self, at_most_s: "float | None" = None) -> None:
        """Sleep until something happens. Without telemetry that is nothing at all between two heartbeats."""
        wait_s = max(0.0, self.lease_end_s - lease_clock_s())
        if self.deadline_s is not None:
            wait_s = min(wait_s, max(0.0, self.deadline_s - time.monotonic()))
        if at_most_s is not None:
            wait_s = min(wait_s, at_most_s)
        if self.sampler is not None:
            wait_s = min(wait_s, self.sampler.due_in_s())
        self.pump.turn(wait_s)
        if self.sampler is not None:
            self.sampler.sample_if_due()

    def _between(self) -> None:
        """Called from long work before the run (a digest, a command): stay reachable, give up when told to."""
        self.pump.turn(0.0)
        if self._why_end():
            raise EndedEarly

    def _settle(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self._turn(end_s - time.monotonic())
            if self._why_end():
                raise EndedEarly

    # -- the run -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        document = {"state": "done"}  # type: dict[str, Any]
        preparation = Preparation(self.root, self.folder, self._between, self._settle)
        try:
            argv = self._check_files()
            preparation.apply(self.task.get("prepare") or {}, self.task.get("require") or [])
            refusal = preparation.refusal()
            if refusal:
                raise Refused("axis_not_applied", refusal)
            self._pass_idle_gate()
            document["state"] = self._measure(argv)
        except Refused as refused:
            document.update(state=refused.state, error=refused.error, detail=refused.detail)
        except EndedEarly:
            document["state"] = self._why_end() or "stopped"
        finally:
            # Whatever happened, also a bug of ours: governor and clocks go back before the lock does.
            preparation.restore()
        if preparation.steps:
            self.evidence["prepare"] = preparation.report()
        files = []  # type: list[dict[str, Any]]
        if self.started_ns and (self.task.get("outputs") or self.task.get("logs")):
            files = self._keep_files(document["state"])
        self._write(document, files)
        if self.scratch:
            remove_tree(self.scratch)
        os.close(self.lock_fd)  # before the sockets: who is told that the run ended finds the slot free
        for client in list(self.clients):
            client.close()

    def _pass_idle_gate(self) -> None:
        """After the preparation, whose own work must not be taken for somebody else's."""
        if self.task.get("idle_gate"):
            try:
                self.evidence["idle"] = wait_for_idle(self.task["idle_gate"], self.root, self._settle)
            except NotIdle as busy:
                self.evidence["idle"] = busy.seen
                raise Refused("not_idle", str(busy)) from None

    def _check_files(self) -> "list[str]":
        """Refuse the run when a file is not there or not the declared one; return the argv with ``~`` expanded in the
        program and in the files that were checked, and nowhere else."""
        argv = [str(word) for word in self.task["argv"]]
        expanded = {}
        for path, sha256, what in self.task.get("checks") or []:
            # a relative path counts from the account's home, where the front stands; the run itself has another folder
            real = os.path.abspath(expand_path(path))
            expanded[path] = real
            was_brought = bool(sha256) and is_stored(real, sha256.lower(), self.state_dir)
            try:
                if not os.path.exists(real):
                    code = "input_lost" if was_brought else "file_missing"
                    raise Refused(code, f"{what}: {real} is not on this device")
                if not sha256:
                    continue
                found = DigestCache(self.state_dir).sha256(real, self._between)
            except OSError as error:
                raise Refused("file_unreadable", f"{what}: {real} cannot be read: {error.strerror}") from None
            if found != sha256.lower():
                if was_brought:
                    self._forget_input(what, real, found)
                raise Refused("digest_mismatch", f"{what}: {real} has SHA-256 {found}, declared is {sha256.lower()}")
        argv[0] = expand_path(argv[0])
        if "/" in argv[0] and not self.task.get("cwd"):
            argv[0] = os.path.abspath(argv[0])  # `tools/bench` lies in the home too, not in the run's fresh folder
        return [expanded.get(word, word) for word in argv]

    def _forget_input(self, what: str, path: str, found: str) -> None:
        try:
            not_those(what, path, found)
        except InputLost as lost:
            raise Refused("input_lost", str(lost)) from None
        except OSError as error:
            raise Refused(os_error_code(error), f"{path} is damaged and cannot be removed: {error.strerror}") from None

    def _measure(self, argv: "list[str]") -> str:
        task = self.task
        cwd = expand_path(task["cwd"]) if task.get("cwd") else None
        if cwd is None:
            self.scratch = cwd = os.path.join(self.folder, "work")
            os.mkdir(cwd, 0o700)
            self._lay_out_inputs(cwd)
        environment = dict(os.environ)
        environment.update(task.get("env") or {})
        environment[COOKIE_NAME] = self.request["cookie"]
        cgroup = own_cgroup(self.root)
        if task.get("sample_hz"):
            hz, power = float(task["sample_hz"]), bool(task.get("sample_power"))
            self.sampler = Sampler(self.root, hz, power, self.pump, environment=environment)
            self.helpers = self.sampler.start()
        limits = LimitWatch(cgroup, self.pump)
        before = Conditions(cgroup, self.root)
        in_fd, out_fd, err_fd = self._open_pipes()
        start = stamp()
        self.started_ns = start["wall_ns"]
        try:
            self.leader = spawn(
                argv, (in_fd, out_fd, err_fd), env=environment, cwd=cwd, keep=(self.lock_fd,), preferred_oom_victim=True
            )
        except SpawnError as error:
            self._stop_sampler()
            raise Refused(error.code, error.detail, state="spawn_failed") from None
        finally:
            for fd in (in_fd, out_fd, err_fd):
                os.close(fd)
        self.deadline_s = start["monotonic_ns"] / 1e9 + float(task["timeout_s"])
        self.leader_start = process_start(self.leader)
        me = os.getpid()
        create_json(
            os.path.join(self.folder, "proc.json"),
            {
                "runner": me,
                "runner_start": process_start(me),
                "leader": self.leader,
                "leader_start": self.leader_start,
            },
        )
        if self.sampler is not None:
            self.sampler.begin()
        state = "done"
        while not self.leader_gone:
            self._turn()
            if self.leader_gone:
                break
            state = self._why_end() or "done"
            if state != "done":
                self._terminate()
                break
        end = self.leader_end if self.leader_gone else stamp()
        self._stop_sampler()
        dead = self._end_tree()
        self._drain()
        wall_s = (end["monotonic_ns"] - start["monotonic_ns"]) / 1e9
        after = Conditions(cgroup, self.root)
        self.evidence.update(compare(before, after, wall_s))
        self.evidence["stamps"] = stamps_between(start, end)
        self.evidence["usage"] = self.usage
        self.evidence["leftover_killed"] = len(self.leftovers)
        self.evidence["tree_dead"] = dead
        self.evidence["duration_s"] = wall_s
        self.evidence["placement"] = limits.end()
        if self.sampler is not None:
            self.evidence["telemetry"] = self.sampler.summary(wall_s)
        return state

    def _lay_out_inputs(self, work: str) -> None:
        inputs, folders = self.task.get("inputs") or [], self.task.get("folders") or []
        if not inputs and not folders:
            return
        try:
            lay_out(inputs, folders, work, self.state_dir, self._between)
        except InputLost as lost:
            raise Refused("input_lost", str(lost)) from None
        except OSError as error:
            raise Refused(os_error_code(error), f"inputs cannot be laid out in {work}: {error.strerror}") from None

    def _open_pipes(self) -> "tuple[int, int, int]":
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        for fd, capture in ((out_read, self.out), (err_read, self.err)):
            os.set_blocking(fd, False)
            self.streams[fd] = capture
            self.pump.add(fd, READABLE, self._reader(fd))
        if not self.stdin:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), out_write, err_write
        in_read, self.stdin_fd = os.pipe()
        os.set_blocking(self.stdin_fd, False)
        self.pump.add(self.stdin_fd, WRITABLE, self._feed)
        return in_read, out_write, err_write

    def _reader(self, fd: int) -> "Callable[[], object]":
        return lambda: self._read(fd)

    def _feed(self) -> None:
        try:
            self.stdin = self.stdin[os.write(self.stdin_fd, self.stdin[:65536]) :]
        except BlockingIOError:
            return
        except OSError:  # it closed its stdin without reading all: its right
            self.stdin = self.stdin[:0]
        if not self.stdin:
            self.pump.remove(self.stdin_fd)
            os.close(self.stdin_fd)
            self.stdin_fd = -1

    def _read(self, fd: int) -> bool:
        """One piece of output; False when there is none left (or none now)."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        self.streams[fd].add(data)
        if not data:
            self.pump.remove(fd)
            del self.streams[fd]
            os.close(fd)
        return bool(data)

    def _drain(self) -> None:
        """What the dead left in their pipes. Bounded: an escaped process may hold a pipe open and go on writing."""
        end_s = time.monotonic() + 2.0
        for fd in list(self.streams):
            while time.monotonic() < end_s and self._read(fd):
                pass

    # -- the end of the process and of its tree ----------------------------------------------------------------------

    def _reap(self) -> bool:
        """Collect whoever died: the leader, or orphans that came to us. False: we have no child left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self.helpers:
                self.helpers.discard(pid)
                continue
            if pid == self.leader:
                self.leader_end = stamp()
                self.returncode = exit_code(status)
                self.leader_gone = True
            self._count(used)

    def _count(self, used: "Any") -> None:
        unit = 1 if sys.platform == "darwin" else 1024  # the only field whose unit depends on the system
        total = self.usage
        total["max_rss_bytes"] = max(total.get("max_rss_bytes", 0), used.ru_maxrss * unit)
        for name, value in (
            ("utime_s", used.ru_utime),
            ("stime_s", used.ru_stime),
            ("voluntary_switches", used.ru_nvcsw),
            ("involuntary_switches", used.ru_nivcsw),
            ("minor_faults", used.ru_minflt),
            ("major_faults", used.ru_majflt),
        ):
            total[name] = total.get(name, 0) + value

    def _terminate(self) -> None:
        """SIGTERM to the group, then patience: a process that blocks on its full pipe must be able to end."""
        self.killed_by_us = True
        self.deadline_s = None
        try:
            os.killpg(self.leader, signal.SIGTERM)  # not reaped yet: the number is still ours
        except OSError:
            pass
        end_s = time.monotonic() + float(self.task.get("grace_s", 5.0))
        while not self.leader_gone and time.monotonic() < end_s:
            self.pump.turn(max(0.0, end_s - time.monotonic()))

    def _end_tree(self) -> bool:
        """Kill until nothing of the tree is left, and say whether that is proven.

        As a sub-reaper we are an ancestor of all that is left of the tree: having no child proves it without a look at
        /proc (8 ms on a busy machine). Elsewhere cookie and session are all the proof there is.
        """
        end_s = time.monotonic() + _TREE_DEATH_S
        while True:
            children = self._reap() and not self._only_helpers()
            if self.subreaper and not children:
                return True
            if not self.leader_gone:
                try:
                    os.killpg(self.leader, signal.SIGKILL)
                except OSError:
                    pass
            me = os.getpid()
            left = traces_of_run(
                self.request["cookie"], self.leader, self.leader_start, me if self.subreaper else None, self.helpers
            )
            if not self.killed_by_us:
                self.leftovers.update(pid for pid in left if pid != self.leader)
            kill_quietly(left)
            if not self.subreaper and not left and self.leader_gone:
                return True
            if time.monotonic() >= end_s:
                return False
            self.pump.turn(0.005)

    def _only_helpers(self) -> bool:
        if not self.helpers:
            return False
        me = os.getpid()
        return not traces_of_run(self.request["cookie"], self.leader, self.leader_start, me, self.helpers)

    def _stop_sampler(self) -> None:
        if self.sampler is not None:
            self.sampler.finish()

    # -- the result --------------------------------------------------------------------------------------------------

    def _keep_files(self, state: str) -> "list[dict[str, Any]]":
        """Keep the files that the task wants home beside the result, until the controller fetched them."""
        outputs = Outputs(
            self.scratch or expand_path(self.task["cwd"]), self.folder, bool(self.scratch), lambda: self.pump.turn(0.0)
        )
        ended_well = state == "done" and self.returncode == 0
        outputs.keep((self.task.get("outputs") or []) if ended_well else [], self.task.get("logs") or [])
        self.evidence.update(outputs.evidence())
        return outputs.kept

    def _oom_kills(self) -> "int | None":
        counted = self.evidence.get("cgroup", {}).get("oom_kills")
        if counted is not None:
            self.evidence["oom_source"] = "cgroup"
            return int(counted)
        # No memory controller (the default of Raspberry Pi OS): the machine's own count, and only for a process that
        # died of a SIGKILL that was not ours.
        machine = self.evidence.get("vmstat_oom_kills")
        if machine and self.returncode == -signal.SIGKILL and not self.killed_by_us:
            self.evidence["oom_source"] = "vmstat"
            return int(machine)
        return None

    def _write(self, document: "dict[str, Any]", files: "list[dict[str, Any]]") -> None:
        evidence = self.evidence
        evidence["agent"] = {"version": self.version, "python": sys.version.split()[0]}
        evidence["proof"] = "subreaper" if self.subreaper else "cookie"
        document.update(
            campaign=self.request["campaign"],
            run_id=self.request["run_id"],
            n=self.request["n"],
            returncode=self.returncode,
            duration_s=evidence.pop("duration_s", None),
            tree_dead=evidence.pop("tree_dead", True),
            oom_kills=self._oom_kills(),
            boot_id=boot_id(),
            stdout=self.out.sizes(),
            stderr=self.err.sizes(),
            files=files,
            evidence=evidence,
        )
        body = json.dumps(document).encode()
        data = (
            b"%d\n" % len(body)
            + body
            + b"".join((bytes(self.out.head), self.out.tail, bytes(self.err.head), self.err.tail))
        )
        os.lseek(self.result_fd, 0, os.SEEK_SET)
        write_all(self.result_fd, data)  # into the space that was reserved before the run
        os.ftruncate(self.result_fd, len(data))
        os.close(self.result_fd)
        os.rename(os.path.join(self.folder, "result.new"), os.path.join(self.folder, "result"))


def read_result(path: str, limit_bytes: "int | None" = None) -> "bytes | None":
    """The result as it was written; None when there is none, or a larger one than ``limit_bytes``."""
    try:
        with open(path, "rb", buffering=0) as file:
            if limit_bytes is not None and os.fstat(file.fileno()).st_size > limit_bytes:
                return None
            return file.readall()
    except FileNotFoundError:
        return None
