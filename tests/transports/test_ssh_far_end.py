"""The rows of the SSH error table that happen on the device: login shells, processes of sshd, outputs of a program."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import PATIENCE_S, FaultProxy, Sshd, children_of, needs_sshd
from sidewinder import transports
from sidewinder.errors import DeviceFault, SidewinderError, TransportError
from sidewinder.model import Device, Task
from sidewinder.transports import ssh_target
from sidewinder.transports.client import AgentClient
from transports.helpers_table import failure, hello, needs_namespaces

pytestmark = needs_sshd


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


# -- login shells -----------------------------------------------------------------------------------------------------


def with_shell(tmp_path: Path, shell: str, uid: int | None = None) -> Sshd:
    """A server whose only user logs in to ``shell``; /etc/passwd of this machine is not touched."""
    lines, own = Path("/etc/passwd").read_text().splitlines(), str(os.geteuid() if uid is None else uid)
    me = [line.rpartition(":")[0] + f":{shell}" if line.split(":")[2] == own else line for line in lines]
    passwd = tmp_path / "passwd"
    passwd.write_text("\n".join(me) + "\n")
    script = f'mount --bind {passwd} /etc/passwd && exec "$@"'
    prefix = [shutil.which("unshare") or "unshare", "--mount", "sh", "-c", script, "sh"]
    return Sshd(tmp_path / "pi5", prefix=prefix)


@pytest.fixture
def login(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    running: list[Sshd] = []

    def login(shell: str) -> Sshd:
        running.append(with_shell(tmp_path, shell).start())
        return running[-1]

    yield login
    for server in running:
        server.stop()


SHELLS = ["sh", "bash", "dash", "zsh", "fish", "tcsh"]


def path_of(shell: str) -> str:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"needs the shell {shell}: apt-get install {shell}")
    return path


@needs_namespaces
@pytest.mark.parametrize("shell", SHELLS)
def test_the_agent_starts_under_every_login_shell(shell: str, login: Callable[..., Sshd]) -> None:
    server = login(path_of(shell))
    assert asyncio.run(hello(server.device())).platform == "linux"


@needs_namespaces
@pytest.mark.parametrize("shell", SHELLS)
def test_no_python_under_every_login_shell(shell: str, login: Callable[..., Sshd]) -> None:
    error = failure(replace(login(path_of(shell)).device(), python="/no/python3"))
    assert type(error) is DeviceFault
    assert "/no/python3" in str(error)
    assert "devices.pi5.python" in str(error)
    assert ("exit code 1" if shell == "tcsh" else "exit code 127") in str(error)


@needs_namespaces
@pytest.mark.parametrize(("shell", "said"), [("nologin", "not available"), ("false", "It said nothing")])
def test_a_login_shell_that_lets_nobody_work(shell: str, said: str, login: Callable[..., Sshd]) -> None:
    error = failure(login(shutil.which(shell) or f"/usr/sbin/{shell}").device())
    assert type(error) is DeviceFault
    assert "its login shell refuses commands" in str(error)
    assert "exit code 1" in str(error)
    assert said in str(error)


@needs_namespaces
def test_a_login_shell_that_is_not_there(login: Callable[..., Sshd]) -> None:
    error = failure(login("/no/such/shell").device())
    assert type(error) is DeviceFault
    assert "login refused" in str(error)
    assert "a login shell that is not there is refused in the same words" in str(error)


def test_a_start_file_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.transports.ssh.GONE_S", 0.1)
    server = Sshd(tmp_path / "pi5").start()
    try:
        (server.home / ".bashrc").write_text("echo about to hang; sleep 600\n")
        for limit_s in (0.5, 2.0, 8.0, PATIENCE_S):  # a machine under load may not have come to the file yet
            monkeypatch.setattr("sidewinder.transports.client.HELLO_S", limit_s)
            error = failure(server.device())
            assert type(error) is TransportError  # the agent never answered: docs/design.md §3
            assert "did not answer" in str(error)
            if "It said: about to hang" in str(error):
                return
    finally:
        server.stop()
    raise AssertionError(f"what the file says is in no message: {error}")


# -- processes of sshd ------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


class Client:
    """A connected agent client and what it stands on."""

    def __init__(self, device: Device) -> None:
        self.transport = transports.open(device)
        self.agent = AgentClient(self.transport, campaign="c", client_id="me", heartbeat_s=0.2)

    async def __aenter__(self) -> AgentClient:
        await self.agent.connect()
        return self.agent

    async def __aexit__(self, *_: object) -> None:
        await self.agent.close()
        await self.transport.close()


def test_a_service_that_is_frozen_takes_connections_and_says_nothing(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_target, "LOGIN_S", 0.5)
    os.kill(server.pid, signal.SIGSTOP)
    error = failure(server.device())
    assert type(error) is TransportError
    assert "timeout" in str(error).lower()
    os.kill(server.pid, signal.SIGCONT)
    monkeypatch.setattr(ssh_target, "LOGIN_S", PATIENCE_S)
    assert asyncio.run(hello(server.device())).platform == "linux"


def test_a_session_that_is_frozen_for_a_while_is_not_lost(server: Sshd) -> None:
    """Shorter than the keep-alive has patience: the answer comes late, the link is the same."""

    async def body() -> int:
        async with Client(server.device()) as agent:
            frozen = server.sessions()
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            answer = asyncio.ensure_future(agent.execute(["echo", "late"]))
            done, _ = await asyncio.wait([answer], timeout=0.5)
            assert not done
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
            assert (await answer).stdout == b"late\n"
            return server.log.read_text().count("Accepted publickey")

    assert asyncio.run(body()) == 1


def test_a_session_that_stays_frozen_is_a_lost_link(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.1)

    async def body() -> None:
        async with Client(server.device()) as agent:
            frozen = server.sessions()
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(TransportError, match="link lost"):
                await agent.execute(["echo", "never"])
            assert await agent.connect()
            for pid in frozen:
                os.kill(pid, signal.SIGKILL)

    asyncio.run(body())


def monitors(server: Sshd) -> list[int]:
    """The processes ``sshd: USER [priv]``, one a connection; an unprivileged sshd has none of its own."""
    found = []
    for pid in server.sessions():
        title = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        if b"[priv]" in title:
            found.append(pid)
    return found


NOBODY = 65534


@needs_namespaces
def test_a_monitor_that_is_killed_says_nothing_until_the_next_session(tmp_path: Path) -> None:
    """sshd has such a process only where it is root and its user is not."""
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    name = next(fields[0] for fields in lines if fields[2] == str(NOBODY))
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are for their owner only
        root = Path(folder)
        root.chmod(0o755)
        server = with_shell(root, "/bin/sh", uid=NOBODY)
        (server.folder / "cache").mkdir()
        for one in (server.home, server.folder / "cache"):
            os.chown(one, NOBODY, -1)
        server.start()

        async def body() -> None:
            async with Client(server.device(user=name)) as agent:
                (monitor,) = monitors(server)
                os.kill(monitor, signal.SIGKILL)
                assert (await agent.execute(["echo", "still"])).stdout == b"still\n"
                await agent.close()  # a second session on the same connection is what needs the monitor
                try:
                    await agent.connect()
                except SidewinderError as error:
                    assert type(error) is TransportError  # noqa: PT017 - it may also be called again at once
                assert await agent.connect()
                assert (await agent.execute(["echo", "again"])).stdout == b"again\n"

        try:
            asyncio.run(body())
        finally:
            server.stop()


def test_a_storm_of_logins_is_told_and_ridden_out(tmp_path: Path) -> None:
    """A server with strangers at its door drops the next ones; whoever was let in before asks again."""
    server = Sshd(tmp_path / "pi5", options=["MaxStartups 1"]).start()
    try:
        _until_let_in(server)
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            assert stranger.recv(8).startswith(b"SSH-"), "it is at the door"
            error = failure(server.device())
            assert type(error) is TransportError
            assert "Too many logins at once" in str(error)
        _until_let_in(server)
    finally:
        server.stop()


def _until_let_in(server: Sshd) -> None:
    """sshd counts whoever just left for a moment more: the test's own look whether it listens, for one."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert asyncio.run(hello(server.device())).platform == "linux"
            return
        except TransportError:
            assert time.monotonic() < end_s
            time.sleep(0.05)


# -- the link ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["power-cut", "reboot"])
def test_a_device_that_goes_and_comes_back(how: str, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut says nothing until the first packet after it is answered by a reset; a reboot hangs up."""
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", PATIENCE_S if how == "power-cut" else 4.0)

    async def body() -> None:
        async with FaultProxy(server.port) as proxy, Client(server.device(port=proxy.port)) as agent:
            call = asyncio.ensure_future(agent.execute(["sleep", "30"]))
            await agent.look(())
            if how == "power-cut":
                proxy.swallow()
                done, _ = await asyncio.wait([call], timeout=0.3)
                assert not done, "silence is no news"
                proxy.reset()
                proxy.heal()
            else:
                server.die()
            with pytest.raises(TransportError, match="link lost"):
                await call
            if how == "reboot":
                with pytest.raises(TransportError, match=r"refused|cut|lost"):
                    await agent.connect()
                server.start()
            assert await agent.connect()

    asyncio.run(body())


# -- what a program does is a result ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "returncode"),
    [("exit 3", 3), ("kill -9 $$", -signal.SIGKILL), ("kill -SEGV $$", -signal.SIGSEGV), ("(kill -SEGV $$)", None)],
    ids=["exit", "killed", "crash", "crash-of-a-child"],
)
def test_how_a_program_ends(script: str, returncode: int | None, server: Sshd) -> None:
    async def body() -> Any:
        async with Client(server.device()) as agent:
            await agent.start("run", 1, Task(("sh", "-c", script)))
            await agent.wait("run", 1)
            return await agent.fetch("run", 1)

    raw = asyncio.run(body())
    assert raw.state == "done"
    if returncode is not None:
        assert raw.returncode == returncode


def test_a_flood_of_odd_bytes_keeps_head_and_tail_and_counts_the_rest(server: Sshd) -> None:
    async def body() -> Any:
        async with Client(server.device()) as agent:
            code = (
                "import os\n"
                "os.write(1, b'head ')\n"
                "for _ in range(96): os.write(1, b'\\xff\\xfe\\x00@@ 1 1\\n' * 16384)\n"
                "os.write(1, b' tail')\n"
            )
            await agent.start("run", 1, Task(("python3", "-c", code)))
            await agent.wait("run", 1)
            return await agent.fetch("run", 1)

    raw = asyncio.run(body())
    assert raw.state == "done"
    assert raw.returncode == 0
    assert raw.stdout.head.startswith(b"head \xff\xfe\x00@@ 1 1\n")
    assert raw.stdout.tail.endswith(b" tail")
    assert raw.stdout.total_bytes > 15_000_000
    assert len(raw.stdout.head) + len(raw.stdout.tail) < 1 << 20


def test_nothing_of_all_that_is_left(server: Sshd) -> None:
    """A closed client leaves no front and no session behind."""

    async def body() -> None:
        async with Client(server.device()) as agent:
            await agent.execute(["true"])

    asyncio.run(body())
    end_s = time.monotonic() + PATIENCE_S
    while children_of(server.pid):
        assert time.monotonic() < end_s
        time.sleep(0.01)
