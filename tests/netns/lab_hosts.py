"""Lab hosts: machines of their own in namespaces of this one, each with a real OpenSSH server, a network cable to pull
and a power switch.

A host has its own processes (and one that reaps them), network card, ``/tmp``, ``/run``, host name, boot id, host key,
sshd and one ordinary account, ``bench``, whose home folder is ``<folder>/<host>/home`` out here and survives a reboot,
as a disk does. All hosts of a lab are ports of one bridge; the controller sits on the bridge itself, in the network of
whoever runs the test. Nothing is shared between two labs: names carry the process that made them, the subnet is one
that nobody uses. A lab whose process was killed ends by itself; its bridge is removed by the next one.

Clocks cannot be namespaced but for the monotonic one, which is the machine's: see ``witness.py``.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields as fields_of
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sidewinder.model import Device

HERE = Path(__file__).resolve().parent
PATIENCE_S = 60.0
USER, UID = "bench", 61234
HOME = "/run/host/home"
# "for benchmarking devices in a network" (RFC 2544): nobody has it at home
SUBNETS = ipaddress.ip_network("198.18.0.0/15")
MARK = "sidewinder test lab"
_numbers = itertools.count()


@functools.cache
def why_not() -> str | None:
    """What this machine lacks to have lab hosts; None: nothing."""
    if sys.platform != "linux":
        return "lab hosts need Linux namespaces"
    if os.geteuid() != 0:
        return "lab hosts need root (namespaces, a bridge)"
    tools = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "iptables": "iptables"}
    missing = sorted({package for tool, package in tools.items() if shutil.which(tool) is None})
    if _sshd() is None:
        missing.append("openssh-server")
    if missing:
        return f"lab hosts need {', '.join(missing)}: apt-get install {' '.join(missing)}"
    if shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") is None:
        return "lab hosts need a python3 that every account may run, in /usr/bin or /usr/local/bin"
    wanted = "ip link add b0 type bridge && ip link add v0 type veth peer name v1 && iptables -w -A INPUT -j DROP"
    probe = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "sh", "-c", wanted],
        capture_output=True,
        check=False,
    )
    said = probe.stderr.decode(errors="replace").strip()
    return f"lab hosts cannot be made here: {said}" if probe.returncode else None


def _sshd() -> str | None:
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Process(NamedTuple):
    """A live process of a host, by its pid out here."""

    pid: int
    parent: int
    session: int
    name: str
    argv: tuple[str, ...]

    @property
    def is_agent(self) -> bool:
        return any('compile(s,"agent","exec")' in word for word in self.argv)


class Execution(NamedTuple):
    """One time that the workload really ran. Seconds of the monotonic clock; ``last_s``: when it was alive for sure."""

    run: str
    start_s: float
    last_s: float
    complete: bool
    start_ns: int


class Witness:
    """What the workloads of one host saw of themselves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def traces(self) -> dict[str, str]:
        """The text of each file that is there, by its name."""
        return {path.name: path.read_text() for path in self.folder.iterdir()} if self.folder.is_dir() else {}

    @property
    def executions(self) -> list[Execution]:
        found = []
        for name, text in self.traces().items():
            lines = text.splitlines() if name[0].isdigit() else []
            if len(lines) > 1 and lines[1].strip():  # else: it has just been made
                told = json.loads(lines[0])
                complete = lines[2:] == ["ended"]
                found.append(
                    Execution(told["run"], told["start_ns"] / 1e9, int(lines[1]) / 1e9, complete, told["start_ns"])
                )
        return sorted(found, key=lambda one: one.start_s)

    def of(self, run: str) -> list[Execution]:
        return [one for one in self.executions if one.run == run]

    def overlaps(self) -> list[tuple[Execution, Execution]]:
        """Executions that ran at the same time: none, on a device with one slot."""
        executions = self.executions
        return [
            (one, other)
            for number, one in enumerate(executions)
            for other in executions[number + 1 :]
            if other.start_s < one.last_s
        ]

    def let_go(self, run: str | None = None) -> None:
        """Workloads that hold end now: this run's, or all."""
        self.folder.mkdir(exist_ok=True)
        if os.geteuid() == 0 and self.folder.parent.stat().st_uid == UID:
            os.chown(self.folder, UID, UID)
        (self.folder / (f"go-{run}" if run else "go")).touch()


class LabHost:
    """One machine. All methods may be called from any thread."""

    def __init__(self, lab: LabHosts, name: str, number: int, options: Sequence[str]) -> None:
        self.lab, self.name, self.number = lab, name, number
        self.folder = lab.folder / name
        self.address = str(lab.subnet[number + 1])
        self.card = f"swv{lab.tag}h{number}"  # the bridge's end of its cable
        self.options = list(options)
        self.witness = Witness(self.folder / "home" / "witness")
        self.boots = 0
        self._switch = threading.RLock()
        self._outer: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._make_files()

    # -- its disk ------------------------------------------------------------------------------------------------------

    def _make_files(self) -> None:
        home, etc = self.folder / "home", self.folder / "etc"
        for folder in (self.folder, home, etc, home / ".ssh"):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        for name, line in (
            ("passwd", f"{USER}:x:{UID}:{UID}::{HOME}:{shutil.which('bash') or '/bin/sh'}\n"),
            ("group", f"{USER}:x:{UID}:\n"),
            ("shadow", f"{USER}:*:19000:0:99999:7:::\n"),
        ):
            (etc / name).write_text(Path("/etc", name).read_text() + line)
        (etc / "shadow").chmod(0o600)
        if not (etc / "host_key").exists():
            _keygen(etc / "host_key")
        shutil.copy(HERE / "witness.py", home)
        self.allow(True)
        for path in (home, *home.rglob("*")):
            os.chown(path, UID, UID)
        self.configure(*self.options)

    def configure(self, *options: str) -> None:
        """Lines of sshd_config before ours; they count from sshd's next start on."""
        own = {line.split()[0] for line in options}
        lines = [
            "Port 22",
            "ListenAddress 0.0.0.0",
            "HostKey /run/host/etc/host_key",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "PidFile none",
            "PrintMotd no",
        ]
        kept = [line for line in lines if line.split()[0] not in own]
        (self.folder / "etc" / "sshd_config").write_text("\n".join([*options, *kept]) + "\n")

    def new_key(self) -> None:
        """As after an installation from scratch; it counts from sshd's next start on."""
        for path in (self.folder / "etc").glob("host_key*"):
            path.unlink()
        _keygen(self.folder / "etc" / "host_key")

    def allow(self, allowed: bool) -> None:
        """Whether the controller's key opens the account."""
        keys = (self.lab.identity.parent / f"{self.lab.identity.name}.pub").read_text() if allowed else ""
        (self.home / ".ssh" / "authorized_keys").write_text(keys)

    @property
    def home(self) -> Path:
        """Its account's home folder, from out here."""
        return self.folder / "home"

    @property
    def public_key(self) -> str:
        return " ".join((self.folder / "etc" / "host_key.pub").read_text().split()[:2])

    # -- power ---------------------------------------------------------------------------------------------------------

    @property
    def is_on(self) -> bool:
        return self._outer is not None

    def power_on(self) -> None:
        """Boot: a new boot id, a new network card with the old number, sshd."""
        with self._switch:
            assert not self.is_on, f"{self.name} is on"
            self.boots += 1
            (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
            prefix = self.lab.subnet.prefixlen
            mac = "02:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}".format(*self.lab.subnet.network_address.packed, self.number)
            told = {
                "name": self.name,
                "folder": str(self.folder),
                "address": f"{self.address}/{prefix}",
                "mac": mac,
            }
            command = [
                *("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"),
                *("--kill-child", sys.executable, "-I", str(HERE / "host_init.py"), json.dumps(told)),
            ]
            environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
            with open(self.folder / "init.log", "ab") as log:
                outer = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**environment, "LAB_SSHD": str(_sshd())},
                    start_new_session=True,
                )
            self._outer = outer
            self._hear("born")
            (self._init,) = map(int, Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split())
            _ip("link", "add", self.card, "type", "veth", "peer", "name", "eth0", "netns", str(self._init))
            _ip("link", "set", self.card, "master", self.lab.bridge, "up")
            self._tell("boot")

    def power_off(self) -> None:
        """The cable first, so that no word of farewell leaves; then everything at once."""
        with self._switch:
            if self.is_on:
                _ip("link", "set", self.card, "down")
                self._die()

    def reboot(self, off_s: float = 0.0) -> None:
        """Its processes are killed while the network still works, so its connections end; then it boots."""
        with self._switch:
            self._die()
            time.sleep(off_s)
            self.power_on()

    def _die(self) -> None:
        outer, self._outer = self._outer, None
        if outer is None:
            return
        if self._init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)
        else:
            outer.kill()
        outer.wait()
        for pipe in (outer.stdin, outer.stdout):
            assert pipe is not None
            pipe.close()
        self._init = 0
        # Not left to the kernel: sockets that wait for answers keep a network alive after its processes.
        _ip("link", "delete", self.card, check=False)

    def _tell(self, word: str) -> None:
        assert self._outer is not None
        pipe = self._outer.stdin
        assert pipe is not None
        pipe.write(word.encode() + b"\n")
        pipe.flush()
        self._hear("up")

    def _hear(self, word: str) -> None:
        assert self._outer is not None
        pipe = self._outer.stdout
        assert pipe is not None
        said = pipe.readline().decode().strip()
        assert said == word, f"{self.name} did not start: {(self.folder / 'init.log').read_text()}"

    # -- the network ---------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Pull the cable: both ends see it."""
        with self._switch:
            if self.is_on:
                _ip("link", "set", self.card, "down")

    def drop(self) -> None:
        """A black hole: the cable is in, nothing passes, nobody is told."""
        self._iptables("-I", "INPUT", "-j", "DROP")
        self._iptables("-I", "OUTPUT", "-j", "DROP")

    def mute(self) -> None:
        """It hears and is not heard: what is sent to it arrives, no answer does."""
        self._iptables("-I", "OUTPUT", "-j", "DROP")

    def reset(self) -> int:
        """RST to both ends of every connection that stands, as soon as either says something; new ones are let in.
        How many there were."""
        found = self.inside("cat", "/proc/net/tcp").splitlines()[1:]
        ports = [
            int(fields[2].rpartition(":")[2], 16)
            for fields in map(str.split, found)
            if fields[1].endswith(":0016") and fields[3] == "01"
        ]
        for port in ports:
            reject = ("-j", "REJECT", "--reject-with", "tcp-reset")
            self._iptables("-I", "INPUT", "-p", "tcp", "--sport", str(port), "--dport", "22", *reject)
            # but for the RST itself
            data = ("!", "--tcp-flags", "RST", "RST")
            self._iptables("-I", "OUTPUT", "-p", "tcp", *data, "--dport", str(port), "--sport", "22", *reject)
        return len(ports)

    def heal(self) -> None:
        """The network works again, whatever was wrong with it."""
        with self._switch:
            if self.is_on:
                _ip("link", "set", self.card, "up")
                self._iptables("-F")

    def _iptables(self, *argv: str) -> None:
        with self._switch:
            if self.is_on:
                _run("nsenter", "-t", str(self._init), "-n", "iptables", "-w", *argv)

    # -- processes -----------------------------------------------------------------------------------------------------

    def all_processes(self) -> list[Process]:
        """Everything that lives there but its first process."""
        if not self._init:
            return []
        space = os.readlink(f"/proc/{self._init}/ns/pid")
        found = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry)
                if pid == self._init or os.readlink(f"/proc/{pid}/ns/pid") != space:
                    continue
                name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
                numbers = rest.split()
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                if numbers[0] not in "ZX":
                    found.append(Process(pid, int(numbers[1]), int(numbers[3]), name, tuple(argv)))
        return found

    def sshd(self, *, sessions_only: bool = False) -> list[Process]:
        found = [one for one in self.all_processes() if one.name.startswith("sshd")]
        return [one for one in found if one.parent != self._init] if sessions_only else found

    def fronts(self) -> list[Process]:
        sshd = {one.pid for one in self.sshd()}
        return [one for one in self.all_processes() if one.is_agent and one.parent in sshd]

    def runners(self) -> list[Process]:
        fronts = {one.pid for one in self.fronts()}
        return [
            one for one in self.all_processes() if one.is_agent and one.pid == one.session and one.pid not in fronts
        ]

    def processes(self) -> list[tuple[str, ...]]:
        """The argv of whatever is neither sshd nor agent: workloads, and what they left."""
        return [one.argv for one in self.all_processes() if not one.is_agent and not one.name.startswith("sshd")]

    def _signal(self, found: Sequence[Process], number: signal.Signals) -> int:
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, number)
        return len(found)

    def kill_front(self) -> int:
        return self._signal(self.fronts(), signal.SIGKILL)

    def kill_runner(self) -> int:
        return self._signal(self.runners(), signal.SIGKILL)

    def kill_sessions(self) -> int:
        """The sshd processes that serve connections; the service goes on."""
        return self._signal(self.sshd(sessions_only=True), signal.SIGKILL)

    def kill_sshd(self) -> int:
        """The service and its sessions. Runs are nobody's children and go on."""
        return self._signal(self.sshd(), signal.SIGKILL)

    def start_sshd(self) -> None:
        with self._switch:
            self._tell("sshd")

    def restart_sshd(self) -> None:
        with self._switch:
            self.kill_sshd()
            until(lambda: not self.sshd(), "all sshd are dead")
            self.start_sshd()

    def freeze_sshd(self) -> int:
        """It holds the connections and says nothing."""
        return self._signal(self.sshd(), signal.SIGSTOP)

    def thaw_sshd(self) -> int:
        return self._signal(self.sshd(), signal.SIGCONT)

    def kill_all(self) -> int:
        """Every process but the first: what is left of a machine after its processes were killed."""
        return self._signal(self.all_processes(), signal.SIGKILL)

    def small_disk(self, size: str) -> str:
        """A disk of this size, mounted for everybody; the same one in another size, the next time. Its folder."""
        self.inside("mkdir", "-p", "/run/small")
        there = "/run/small" in self.inside("cat", "/proc/mounts")
        options = f"{'remount,' if there else ''}size={size},mode=1777"
        self.inside("mount", "-t", "tmpfs", "-o", options, "none", "/run/small")
        return "/run/small"

    def inside(self, *argv: str, check: bool = True) -> str:
        """What a command says that root runs there."""
        enter = ("nsenter", "-t", str(self._init), "-m", "-u", "-i", "-n", "-p")
        return _run(*enter, *argv, check=check)

    # -- as the controller sees it -------------------------------------------------------------------------------------

    def settings(self, **more: Any) -> dict[str, Any]:
        """Its block of a lab's config. None takes a key out."""
        found = {
            "host": self.address,
            "user": USER,
            "identity_file": str(self.lab.identity),
            "known_hosts": str(self.lab.known_hosts),
            **more,
        }
        return {key: value for key, value in found.items() if value is not None}

    def device(self, name: str | None = None, **settings: Any) -> Device:
        """``settings``: fields of ``Device`` by their names, the transport's keys otherwise."""
        names = {one.name for one in fields_of(Device)} - {"id", "kind", "settings"}
        own = {key: settings.pop(key) for key in list(settings) if key in names}
        return Device(name or self.name, "ssh", settings=self.settings(**settings), **own)


class LabHosts:
    """``with LabHosts(folder, n=3) as lab:`` boots ``h1``, ``h2``, ``h3``; ``lab["h1"]`` is one of them. Skips with the
    reason where that is impossible. ``options``: lines of sshd_config by host."""

    def __init__(self, folder: Path, n: int = 3, *, options: dict[str, Sequence[str]] | None = None) -> None:
        reason = why_not()
        if reason:
            pytest.skip(reason)
        self.folder = folder.resolve()
        self.tag = f"{os.getpid()}k{next(_numbers) % 10}"
        self.bridge = f"swb{self.tag}"
        self._wanted = [(f"h{number + 1}", (options or {}).get(f"h{number + 1}", ())) for number in range(n)]
        self.hosts: dict[str, LabHost] = {}
        self.identity = self.folder / "identity"
        self.known_hosts = self.folder / "known_hosts"

    def __enter__(self) -> LabHosts:
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.identity.exists():
            _keygen(self.identity)
        self._make_bridge()
        try:
            for number, (name, options) in enumerate(self._wanted, 1):
                self.hosts[name] = LabHost(self, name, number, options)
            self.trust()
            for host in self.hosts.values():
                host.power_on()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, name: str) -> LabHost:
        return self.hosts[name]

    def __iter__(self) -> Iterator[LabHost]:
        return iter(self.hosts.values())

    def close(self) -> None:
        """Everything away, whatever failed before."""
        for host in self.hosts.values():
            with contextlib.suppress(Exception):  # the others must go too
                host.power_off()
        _ip("link", "delete", self.bridge, check=False)

    def trust(self) -> None:
        """The controller knows the host keys that the hosts have now."""
        self.known_hosts.write_text("".join(f"{host.address} {host.public_key}\n" for host in self))

    def _make_bridge(self) -> None:
        lock = Path(tempfile.gettempdir()) / "sidewinder-test-lab.lock"
        with open(lock, "w") as turn:
            flock(turn, LOCK_EX)
            sweep()
            _ip("link", "add", self.bridge, "type", "bridge")
            try:
                _ip("link", "set", self.bridge, "alias", _mark())
                self.subnet = _free_subnet()
                _ip("address", "add", f"{self.subnet[1]}/{self.subnet.prefixlen}", "dev", self.bridge)
                _ip("link", "set", self.bridge, "up")
            except BaseException:
                _ip("link", "delete", self.bridge, check=False)
                raise


def _mark() -> str:
    return f"{MARK} {_space()} {os.getpid()} {_started(os.getpid())}"


def _space() -> str:
    """The pid namespace: a pid of another one says nothing here."""
    return os.readlink("/proc/self/ns/pid")


def _started(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return "gone"


def sweep() -> list[str]:
    """Remove the bridges of labs whose process is dead. Their hosts ended with it."""
    swept = []
    for alias in Path("/sys/class/net").glob("swb*/ifalias"):
        with contextlib.suppress(OSError, ValueError):
            mark, _, rest = alias.read_text().strip().rpartition(f"{MARK} ")
            space, pid, started = rest.split()
            if not mark and space == _space() and _started(int(pid)) != started:
                _ip("link", "delete", alias.parent.name)
                swept.append(alias.parent.name)
    return swept


def _free_subnet() -> ipaddress.IPv4Network:
    told = json.loads(_run("ip", "-j", "-4", "address")) + json.loads(_run("ip", "-j", "-4", "route"))
    taken = []
    for entry in told:
        for one in entry.get("addr_info", ()):
            taken.append(ipaddress.ip_network(f"{one['local']}/{one['prefixlen']}", strict=False))
        if entry.get("dst", "default") != "default":
            taken.append(ipaddress.ip_network(entry["dst"].split()[-1], strict=False))
    for subnet in SUBNETS.subnets(new_prefix=27):
        if not any(subnet.overlaps(other) for other in taken):
            assert isinstance(subnet, ipaddress.IPv4Network)
            return subnet
    raise AssertionError(f"no free subnet in {SUBNETS}")


def _keygen(path: Path) -> None:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))


def _ip(*argv: str, check: bool = True) -> None:
    _run("ip", *argv, check=check)


def _run(*argv: str, check: bool = True) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def until(what: Callable[[], object], said: str, patience_s: float = PATIENCE_S) -> None:
    end_s = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < end_s, f"never: {said}"
        time.sleep(0.02)


def workload(run: str, how_long: float | str) -> tuple[str, ...]:
    """The argv of a witness: ``run`` names the point in its trace, ``how_long`` are seconds or ``"hold"``."""
    return ("python3", "-S", f"{HOME}/witness.py", f"{HOME}/witness", run, str(how_long))
