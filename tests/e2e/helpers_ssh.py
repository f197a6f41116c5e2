"""Real OpenSSH servers on loopback, and a proxy before them that does to a connection what a bad night does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sidewinder.model import Device

SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
needs_sshd = pytest.mark.skipif(SSHD is None, reason="needs a real sshd: apt-get install openssh-server")
PATIENCE_S = 30.0


def keygen(path: Path, *, passphrase: str = "", comment: str = "") -> Path:
    """A fresh ed25519 key pair; the public half lies beside it with ``.pub``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", comment or path.name, "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on nothing of the person who runs the tests is seen: no config, no cache, no agent with keys."""
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def children_of(pid: int) -> list[int]:
    """All live processes below ``pid``."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                if fields[0] not in "ZX":
                    parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = parents.get(todo.pop(), [])
        found += below
        todo += below
    return found


class Sshd:
    """One OpenSSH server with keys, home folder and agent state of its own; ``stop`` ends it with all its sessions."""

    def __init__(
        self, folder: Path, *, options: Sequence[str] = (), port: int | None = None, prefix: Sequence[str] = ()
    ) -> None:
        """``prefix``: a command that starts sshd in other conditions and becomes it (``exec``)."""
        assert SSHD is not None
        self.prefix = list(prefix)
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.state = folder / "cache" / "sidewinder"
        self.port = port or free_port()
        self.host_key = folder / "host_key"
        if not self.host_key.exists():
            keygen(self.host_key)
        self.identity = folder / "identity"
        if not self.identity.exists():
            keygen(self.identity, comment="bench@test")
        self.log = folder / "sshd.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._left: list[int] = []  # sessions of a service that was stopped
        self.configure(*options)

    def configure(self, *options: str) -> None:
        own = {line.split()[0] for line in options}
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.identity}.pub",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PidFile none",
            "PrintMotd no",
            f"SetEnv HOME={self.home} XDG_CACHE_HOME={self.folder / 'cache'}",
        ]
        kept = [line for line in lines if line.split()[0] not in own]
        (self.folder / "sshd_config").write_text("\n".join([*options, *kept]) + "\n")

    def start(self) -> Sshd:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation folder
        # An absolute path: sshd starts itself again for each connection.
        command = [*self.prefix, str(SSHD), "-D", "-f", str(self.folder / "sshd_config"), "-E", str(self.log)]
        self._process = subprocess.Popen(command, start_new_session=True)
        end_s = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            assert self._process.poll() is None, f"sshd did not start: {self.log.read_text()}"
            assert time.monotonic() < end_s, "sshd never listened"
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def sessions(self) -> list[int]:
        """The sshd processes that serve connections."""
        found = []
        for pid in children_of(self.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip().startswith("sshd"):
                    found.append(pid)
        return found

    def cut_sessions(self) -> None:
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop_listening(self) -> None:
        """Sessions go on."""
        assert self._process is not None
        self._left = self.sessions()
        self._process.kill()
        self._process.wait()

    def die(self) -> None:
        """The service and all its sessions, but no run: runners are nobody's children."""
        self.stop_listening()
        for pid in self._left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        if self._process is None:
            return
        below = [*children_of(self._process.pid), *self._left]
        self._process.kill()
        self._process.wait()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process = None

    def public_host_key(self) -> str:
        return " ".join(Path(f"{self.host_key}.pub").read_text().split()[:2])

    def known_hosts(self, *ports: int) -> Path:
        """A file that trusts this server at its own port and at these (proxies before it)."""
        path = self.folder / "known_hosts"
        lines = [f"[127.0.0.1]:{port} {self.public_host_key()}\n" for port in (self.port, *ports)]
        path.write_text("".join(lines))
        return path

    def device(self, name: str = "pi5", *, port: int | None = None, **settings: Any) -> Device:
        return Device(name, "ssh", settings=self.settings(port=port, **settings))

    def settings(self, *, port: int | None = None, **more: Any) -> dict[str, Any]:
        port = port or self.port
        found = {
            "host": "127.0.0.1",
            "port": port,
            "identity_file": str(self.identity),
            "known_hosts": str(self.known_hosts(port)),
        }
        return {key: value for key, value in {**found, **more}.items() if value is not None}


@contextlib.contextmanager
def sshd(folder: Path, *options: str) -> Iterator[Sshd]:
    server = Sshd(folder, options=options).start()
    try:
        yield server
    finally:
        server.stop()


class FaultProxy:
    """Stands before a server: passes everything on until it is told to be a bad link."""

    def __init__(self, port_behind: int, host_behind: str = "127.0.0.1") -> None:
        self.port_behind, self.host_behind = port_behind, host_behind
        self.port = 0
        self.delay_s = 0.0
        self.refuses = False  # cuts a new connection at once
        self.swallow_after_bytes: int | None = None  # becomes a black hole when it has passed so many on
        self.passed_bytes = 0
        self.connections = 0
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def swallow(self) -> None:
        """A black hole: nothing is passed on and nothing is said."""
        self._flows.clear()

    def heal(self) -> None:
        self.swallow_after_bytes = None
        self._flows.set()

    def reset(self) -> None:
        """RST to both sides of every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        if self.refuses:
            writer.transport.abort()
            return
        try:
            behind_reader, behind_writer = await asyncio.open_connection(self.host_behind, self.port_behind)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, behind_writer}
        self._writers |= pair
        try:
            with contextlib.suppress(asyncio.CancelledError):  # asyncio.streams logs what it finds cancelled
                await asyncio.gather(self._pump(reader, behind_writer), self._pump(behind_reader, writer))
        finally:
            self._writers -= pair
            for one in pair:
                one.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._flows.wait()
                sink.write(data)
                await sink.drain()
                self.passed_bytes += len(data)
                if self.swallow_after_bytes is not None and self.passed_bytes >= self.swallow_after_bytes:
                    self.swallow()
        with contextlib.suppress(OSError, RuntimeError):
            await self._flows.wait()
            sink.close()


class ProxyThread:
    """A fault proxy for tests that do not live in a loop."""

    def __init__(self, port_behind: int, host_behind: str = "127.0.0.1") -> None:
        self.proxy = FaultProxy(port_behind, host_behind)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault proxy", daemon=True)

    @property
    def port(self) -> int:
        return self.proxy.port

    def __enter__(self) -> ProxyThread:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.proxy.__aenter__(), self._loop).result(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.proxy.__aexit__(), self._loop).result(PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def do(self, what: Callable[[FaultProxy], None]) -> None:
        """In the proxy's own loop, over when this returns."""

        async def body() -> None:
            what(self.proxy)

        asyncio.run_coroutine_threadsafe(body(), self._loop).result(PATIENCE_S)
