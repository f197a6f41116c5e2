"""The SSH error table against real servers: each failure has its class, names its device and says what to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import FaultProxy, Sshd, free_port, keygen, needs_sshd
from sidewinder import transports
from sidewinder.errors import ConfigError, DeviceFault, SidewinderError, TransportError
from sidewinder.model import Device, Task
from sidewinder.transports import ssh_connection, ssh_errors, ssh_sockets, ssh_target
from sidewinder.transports.client import AgentClient
from transports.helpers_table import failure, hello, special

pytestmark = needs_sshd


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No config, key or agent of the person who runs the tests."""
    home = tmp_path / "me"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """One that works; the tests come to it in ways that do not."""
    one = Sshd(tmp_path_factory.mktemp("sshd")).start()
    yield one
    one.stop()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def listener(serve: Serve) -> AsyncIterator[int]:
    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield opened.sockets[0].getsockname()[1]
    finally:
        opened.close()


def failure_at(serve: Serve, server: Sshd) -> Any:
    async def body() -> Any:
        async with listener(serve) as port:
            with pytest.raises(SidewinderError) as caught:
                await hello(server.device(port=port))
            return caught.value

    return asyncio.run(body())


# -- on the way there -------------------------------------------------------------------------------------------------


def test_nobody_listens(server: Sshd) -> None:
    error = failure(server.device(port=free_port()))
    assert isinstance(error, TransportError)
    assert "refused" in str(error)


async def _closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _resets(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def _speaks_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def _says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


@pytest.mark.parametrize("serve", [_closes, _resets, _speaks_http], ids=["closes", "resets", "http"])
def test_no_ssh_server(serve: Any, server: Sshd) -> None:
    assert isinstance(failure_at(serve, server), TransportError)


def test_silent_after_the_connection(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_target, "LOGIN_S", 0.3)
    error = failure_at(_says_nothing, server)
    assert isinstance(error, TransportError)
    assert "timeout" in str(error).lower()


def test_silent_before_the_connection(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full backlog drops the SYN, as a firewall does."""
    monkeypatch.setattr(ssh_connection, "CONNECT_S", 0.3)
    with contextlib.ExitStack() as held, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        error = failure(server.device(port=full.getsockname()[1]))
    assert isinstance(error, TransportError)
    assert "0.3 s" in str(error)


def test_a_server_that_wakes_up_is_found_before_the_kernel_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel repeats a lost SYN after a second: too late for this limit, so a fresh one must have been sent."""
    monkeypatch.setattr(ssh_sockets, "TRY_S", 0.05)
    real, tries, second = ssh_sockets._connect, [], asyncio.Event()

    async def connect(*args: Any) -> socket.socket:
        tries.append(args)
        if len(tries) == 2:  # the first packet is lost
            second.set()
        return await real(*args)

    monkeypatch.setattr(ssh_sockets, "_connect", connect)

    async def body() -> None:
        with contextlib.ExitStack() as held, socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):
                one = held.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            opening = asyncio.ensure_future(ssh_sockets.open_socket("127.0.0.1", full.getsockname()[1], 0, limit_s=0.9))
            await asyncio.wait([opening, asyncio.ensure_future(second.wait())], return_when=asyncio.FIRST_COMPLETED)
            full.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    held.enter_context(full.accept()[0])
            held.enter_context(await opening)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("code", "kind"),
    [(socket.EAI_NONAME, DeviceFault), (socket.EAI_AGAIN, TransportError)],
    ids=["no-name", "try-again"],
)
def test_a_name_that_does_not_resolve(code: int, kind: type, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    _resolver_says(monkeypatch, code)
    error = failure(server.device(host="pi5.lan"))
    assert isinstance(error, kind)
    assert "'pi5.lan'" in str(error)


def _resolver_says(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real = socket.getaddrinfo

    def resolver(host: Any, *args: Any, **more: Any) -> Any:
        if host == "pi5.lan":
            raise socket.gaierror(code, "so says the resolver")
        return real(host, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolver)


def test_a_name_that_is_gone_after_it_worked_is_a_device_that_reboots(
    server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ssh_target.target_of(server.device())
    error = ssh_errors.translate(socket.gaierror(socket.EAI_NONAME, "gone"), target, answered_before=True)
    assert isinstance(error, TransportError)


# -- host keys --------------------------------------------------------------------------------------------------------


def shown_fingerprint(path: Path) -> str:
    import asyncssh

    return asyncssh.read_public_key(f"{path}.pub").get_fingerprint()


def known(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_an_unknown_host_key(server: Sshd, tmp_path: Path) -> None:
    error = failure(server.device(known_hosts=str(tmp_path / "nothing/there")))
    assert isinstance(error, DeviceFault)
    assert "unknown" in str(error)
    assert shown_fingerprint(server.host_key) in str(error)
    assert "sidewinder devices enrol pi5" in str(error)


def test_a_changed_host_key(server: Sshd, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    line = f"[127.0.0.1]:{server.port} {Path(f'{other}.pub').read_text()}"
    error = failure(server.device(known_hosts=known(tmp_path, line)))
    assert isinstance(error, DeviceFault)
    assert "CHANGED" in str(error)
    assert shown_fingerprint(server.host_key) in str(error)
    assert shown_fingerprint(other) in str(error)


def test_the_key_of_another_port_of_the_host_makes_no_changed_key(server: Sshd, tmp_path: Path) -> None:
    other = keygen(tmp_path / "other")
    error = failure(server.device(known_hosts=known(tmp_path, f"127.0.0.1 {Path(f'{other}.pub').read_text()}")))
    assert "unknown" in str(error)


def test_a_revoked_host_key(server: Sshd, tmp_path: Path) -> None:
    address = f"[127.0.0.1]:{server.port}"
    lines = f"{address} {server.public_host_key()}", f"@revoked {address} {server.public_host_key()}"
    error = failure(server.device(known_hosts=known(tmp_path, *lines)))
    assert isinstance(error, DeviceFault)
    assert "revoked" in str(error)


def test_verification_cannot_be_switched_off(server: Sshd, tmp_path: Path, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/config").write_text(
        "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile none\n  HostKeyAlgorithms +ssh-rsa\n"
    )
    for options in ([], ["-o", "StrictHostKeyChecking=no"], ["-oUserKnownHostsFile=/dev/null"]):
        error = failure(server.device(known_hosts=str(tmp_path / "nothing"), ssh_options=options))
        assert isinstance(error, DeviceFault)
        assert "unknown" in str(error)


def test_the_users_own_known_hosts_count(server: Sshd, tmp_path: Path, home: Path) -> None:
    (home / ".ssh").mkdir()
    line = f"[127.0.0.1]:{server.port} {server.public_host_key()}\n"
    (home / ".ssh/known_hosts").write_text(f"a line that nobody can read\n@revoked\n{line}")
    assert asyncio.run(hello(server.device(known_hosts=str(tmp_path / "nothing"))))


# -- login ------------------------------------------------------------------------------------------------------------


def test_a_key_that_is_not_authorized(server: Sshd, tmp_path: Path) -> None:
    wrong = keygen(tmp_path / "wrong", comment="wrong@here")
    error = failure(server.device(identity_file=str(wrong), user="root"))
    assert isinstance(error, DeviceFault)
    for part in ("'root'", f"127.0.0.1:{server.port}", "wrong@here", shown_fingerprint(wrong), "authorized_keys"):
        assert part in str(error)


def test_a_user_who_does_not_exist(server: Sshd) -> None:
    error = failure(server.device(user="nobody-of-that-name"))
    assert isinstance(error, DeviceFault)
    assert "'nobody-of-that-name'" in str(error)


def test_no_key_at_all(server: Sshd) -> None:
    error = failure(server.device(identity_file=None))
    assert isinstance(error, DeviceFault)
    assert "no key at all" in str(error)


def test_an_identity_file_that_is_missing(server: Sshd, tmp_path: Path) -> None:
    error = failure(server.device(identity_file=str(tmp_path / "nowhere")))
    assert isinstance(error, ConfigError)  # a file missing on the controller: docs/design.md §3
    assert str(tmp_path / "nowhere") in str(error)
    assert "identity_file" in str(error)


def test_a_key_with_a_passphrase(server: Sshd, tmp_path: Path) -> None:
    error = failure(server.device(identity_file=str(keygen(tmp_path / "locked", passphrase="open sesame"))))
    assert isinstance(error, DeviceFault)
    assert "ssh-add" in str(error)
    assert "open sesame" not in str(error)


def test_no_algorithm_in_common(server: Sshd, tmp_path: Path) -> None:
    with special(tmp_path, "KexAlgorithms curve25519-sha256") as picky:
        error = failure(picky.device(ssh_options=["-o", "KexAlgorithms=diffie-hellman-group14-sha256"]))
    assert isinstance(error, DeviceFault)
    assert "algorithm" in str(error)


def test_a_banner_that_is_not_utf_8_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "banner").write_bytes(b"Gr\xfc\xdfe \xff\xfe \x92\n")
    with special(tmp_path, f"Banner {tmp_path / 'banner'}") as server:
        assert asyncio.run(hello(server.device())).platform == "linux"


# -- settings ---------------------------------------------------------------------------------------------------------


def test_the_users_config_is_honoured_but_for_what_would_change_a_run(server: Sshd, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/config").write_text(
        f"Host the-pi\n  HostName 127.0.0.1\n  Port {server.port}\n  IdentityFile {server.identity}\n"
        "  RequestTTY force\n  RemoteCommand echo no\n  SetEnv LC_ALL=xx\n"
    )
    device = Device("pi5", "ssh", settings={"host": "the-pi", "known_hosts": str(server.known_hosts())})
    assert asyncio.run(hello(device)).platform == "linux"


def test_a_config_that_cannot_be_read_is_named(server: Sshd, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/config").write_text("Host *\n  Port many\n")
    error = failure(server.device())
    assert isinstance(error, ConfigError)
    assert "line 2" in str(error)


@pytest.mark.parametrize("options", [["-D", "1080"], ["-o"], ["-o", "Compression"], ["-p", ""]], ids=" ".join)
def test_an_option_that_is_not_understood(options: list[str], server: Sshd) -> None:
    error = failure(server.device(ssh_options=options))
    assert isinstance(error, ConfigError)
    assert "ssh_options" in str(error)


@pytest.mark.parametrize("python", ["it's", "a\\b", "wow!", "a\nb"])
def test_a_python_that_no_shell_can_be_told(python: str, server: Sshd) -> None:
    error = failure(replace(server.device(), python=python))
    assert isinstance(error, ConfigError)
    assert "devices.pi5.python" in str(error)


# -- what the device answers ------------------------------------------------------------------------------------------


def test_no_python(server: Sshd) -> None:
    error = failure(replace(server.device(), python="/no/python3"))
    assert isinstance(error, DeviceFault)
    assert "127" in str(error)
    assert "/no/python3" in str(error)
    assert "devices.pi5.python" in str(error)


def test_a_python_that_may_not_be_executed(server: Sshd, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("no program")
    error = failure(replace(server.device(), python=str(tmp_path / "a file")))
    assert isinstance(error, DeviceFault)
    assert "126" in str(error)


def test_a_login_shell_that_refuses(tmp_path: Path) -> None:
    with special(tmp_path, "ForceCommand echo This account is currently not available.; exit 1") as server:
        error = failure(server.device())
    assert isinstance(error, DeviceFault)
    assert "not available" in str(error)


def test_a_far_command_that_is_killed_says_nothing_about_the_device(tmp_path: Path) -> None:
    with special(tmp_path, "ForceCommand kill -9 $$") as server:
        assert isinstance(failure(server.device()), TransportError)


def test_sessions_are_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.transports.ssh.REFUSALS_S", (0.01,))
    with special(tmp_path, "MaxSessions 0") as server:
        error = failure(server.device())
    assert isinstance(error, TransportError)


@pytest.mark.parametrize("noise", ["echo welcome; printf 'no end'", "printf '\\377\\376 @@ 12 3\\n' >&2; echo @@x 1 1"])
def test_a_noisy_login_changes_nothing(noise: str, tmp_path: Path) -> None:
    with special(tmp_path) as server:
        (server.home / ".bashrc").write_text(f"{noise}\n")
        transport_said = asyncio.run(hello(server.device()))
        (server.home / ".bashrc").write_text("exit 3\n")
        error = failure(server.device())
    assert transport_said.platform == "linux"
    assert isinstance(error, DeviceFault)  # proves that the file is read at all
    assert "exit code 3" in str(error)


def test_a_login_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.transports.client.HELLO_S", 0.5)
    monkeypatch.setattr("sidewinder.transports.ssh.GONE_S", 0.1)
    with special(tmp_path, "ForceCommand sleep 60") as server:
        error = failure(server.device())
    assert isinstance(error, TransportError)
    assert "did not answer" in str(error)


def test_one_session_at_a_time_is_enough(tmp_path: Path) -> None:
    async def body(device: Device) -> int:
        transport = transports.open(device)
        client = AgentClient(transport, campaign="c", client_id="me")
        pids = set()
        for _ in range(4):  # sshd frees a session later than we see its end
            await client.connect()
            pids.add((await client.execute(["sh", "-c", "echo $PPID"])).stdout)
            await client.close()
        await transport.close()
        return len(pids)

    with special(tmp_path, "MaxSessions 1") as server:
        assert asyncio.run(body(server.device())) == 4
        assert server.log.read_text().count("Accepted publickey") == 1


# -- what happens later -----------------------------------------------------------------------------------------------


def broken(server: Sshd, fault: Callable[[Sshd, FaultProxy], object]) -> tuple[SidewinderError, bool]:
    """The error of a call that waits while ``fault`` strikes, and whether the next connect works."""

    async def body() -> tuple[SidewinderError, bool]:
        async with FaultProxy(server.port) as proxy:
            transport = transports.open(server.device(port=proxy.port))
            client = AgentClient(transport, campaign="c", client_id="me")
            await client.connect()
            call = asyncio.ensure_future(client.execute(["sleep", "30"]))
            await asyncio.sleep(0)
            await client.look(())  # the call above is on its way
            fault(server, proxy)
            with pytest.raises(SidewinderError) as caught:
                await call
            proxy.heal()
            hello = await client.connect()
            await client.close()
            await transport.close()
            return caught.value, hello is not None

    return asyncio.run(body())


@pytest.mark.parametrize(
    "fault",
    [lambda _, proxy: proxy.reset(), lambda server, _: server.cut_sessions(), lambda _, proxy: proxy.swallow()],
    ids=["reset", "session-killed", "silent"],
)
def test_a_link_that_breaks_is_lost_and_comes_back(
    fault: Callable[[Sshd, FaultProxy], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.1)
    with special(tmp_path) as server:
        error, works_again = broken(server, fault)
    assert isinstance(error, TransportError)
    assert "link lost" in str(error)
    assert works_again


def test_the_keepalive_notices_silence_within_15_seconds() -> None:
    assert ssh_target.KEEPALIVE_S * (ssh_target.KEEPALIVES + 1) <= 15


def test_a_service_that_was_stopped_keeps_its_sessions(tmp_path: Path) -> None:
    async def body(server: Sshd) -> None:
        transport = transports.open(server.device())
        client = AgentClient(transport, campaign="c", client_id="me")
        await client.connect()
        sessions = server.sessions()
        server.stop_listening()
        assert (await client.execute(["echo", "still"])).stdout == b"still\n"
        await client.close()
        await transport.close()
        with pytest.raises(TransportError, match="refused"):
            await client.connect()
        assert sessions

    with special(tmp_path) as server:
        asyncio.run(body(server))


def test_a_workdir_that_cannot_be_written(server: Sshd) -> None:
    error = failure(server.device(workdir="/sys/sidewinder"))
    assert isinstance(error, DeviceFault)
    assert "/sys/sidewinder" in str(error)
    assert "devices.pi5.workdir" in str(error)


def test_a_disk_without_room(tmp_path: Path) -> None:
    unshare, disk = shutil.which("unshare"), tmp_path / "disk"
    if unshare is None or os.geteuid() != 0:
        pytest.skip("a full disk of one's own needs root and util-linux' unshare")
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk} && {{ cat /dev/zero > {disk}/zeros; exec "$@"; }}'
    server = Sshd(tmp_path / "special", prefix=[unshare, "--mount", "sh", "-c", f"{script} 2>/dev/null", "sh"]).start()

    async def body() -> None:
        transport = transports.open(server.device(workdir=str(disk / "agent")))
        client = AgentClient(transport, campaign="c", client_id="me")
        try:
            await client.connect()
            await client.start("run", 1, Task(("true",)))
        finally:
            await client.close()
            await transport.close()

    try:
        with pytest.raises(DeviceFault, match="disk is full") as caught:
            asyncio.run(body())
    finally:
        server.stop()
    assert "devices.pi5.workdir" in str(caught.value)
