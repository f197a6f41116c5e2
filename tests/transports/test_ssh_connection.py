"""An SSH connection over real servers: kept, shared where it should be, and taken in turns."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import FaultProxy, Sshd, keygen, needs_sshd
from sidewinder import transports
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.model import Device, Task
from sidewinder.transports import ssh as ssh_transport
from sidewinder.transports.client import AgentClient

pytestmark = needs_sshd


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "me"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return home


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    servers: list[Sshd] = []

    def make_one(name: str = "pi5", *options: str) -> Sshd:
        servers.append(Sshd(tmp_path / name, options=options).start())
        return servers[-1]

    yield make_one
    for server in servers:
        server.stop()


def logins(server: Sshd) -> int:
    return server.log.read_text().count("Accepted publickey")


def together(devices: list[Device], test: Callable[[list[AgentClient]], Awaitable[Any]]) -> Any:
    """All of them connected at the same moment."""

    async def body() -> Any:
        clients = [AgentClient(transports.open(d), campaign="c", client_id=f"at-{d.id}") for d in devices]
        try:
            await asyncio.gather(*(client.connect() for client in clients))
            return await test(clients)
        finally:
            for client in clients:
                await client.close()
                await client.transport.close()
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            assert not rest, rest

    return asyncio.run(body())


async def _run(client: AgentClient, run_id: str, *argv: str) -> bytes:
    await client.start(run_id, 1, Task(argv))
    await client.wait(run_id, 1)
    raw = await client.fetch(run_id, 1)
    await client.ack(run_id, 1)
    return raw.stdout.head


def test_one_login_serves_all_channels(make: Callable[..., Sshd]) -> None:
    server = make()

    async def test(clients: list[AgentClient]) -> list[bytes]:
        (client,) = clients
        said = []
        for n in range(3):
            await client.connect()
            said.append(await _run(client, f"run{n}", "echo", str(n)))
            await client.close()
        return said

    assert together([server.device()], test) == [b"0\n", b"1\n", b"2\n"]
    assert logins(server) == 1


def test_closing_leaves_no_process(make: Callable[..., Sshd]) -> None:
    server = make()

    async def test(clients: list[AgentClient]) -> bool:
        return bool(server.sessions())

    assert together([server.device()], test)
    for _ in range(500):
        if not server.sessions():
            return
        subprocess.run(["sleep", "0.01"], check=True)
    raise AssertionError("a session is left")


def test_bytes_come_through_as_they_are(make: Callable[..., Sshd]) -> None:
    odd = b"\xc2\x20 \xff\xfe \x00 \r\n\x92" * 1000

    async def test(clients: list[AgentClient]) -> bytes:
        return (await clients[0].execute(["cat"], stdin=odd)).stdout

    assert together([make().device()], test) == odd


def _behind(jump: Sshd, server: Sshd, name: str, home: Path, *more: str) -> Device:
    (home / ".ssh/config").write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.identity}\n"
    )
    trusted = home / "known"
    trusted.write_text(
        f"[127.0.0.1]:{jump.port} {jump.public_host_key()}\n[127.0.0.1]:{server.port} {server.public_host_key()}\n"
    )
    return server.device(name, known_hosts=str(trusted), ssh_options=["-J", "bastion", *more])


def test_devices_behind_a_jump_host_share_its_connection(make: Callable[..., Sshd], home: Path) -> None:
    jump, server = make("jump", "LogLevel VERBOSE"), make("inner")
    devices = [_behind(jump, server, f"pi{n}", home) for n in range(3)]

    async def test(clients: list[AgentClient]) -> list[bytes]:
        return [await _run(client, f"on-{client.device.id}", "echo", client.device.id) for client in clients]

    assert together(devices, test) == [b"pi0\n", b"pi1\n", b"pi2\n"]
    assert (logins(jump), logins(server)) == (1, 3)
    assert jump.log.read_text().count("Starting session") == 1, "it is warmed up once"


def test_a_jump_host_that_allows_no_commands_is_as_good(make: Callable[..., Sshd], home: Path) -> None:
    jump, server = make("jump", "ForceCommand exit 1"), make("inner")

    async def test(clients: list[AgentClient]) -> bytes:
        return await _run(clients[0], "run", "echo", "there")

    assert together([_behind(jump, server, "pi5", home)], test) == b"there\n"


def test_a_jump_host_that_is_lost_takes_its_devices_along_and_is_dialled_again(
    make: Callable[..., Sshd], home: Path
) -> None:
    jump, server = make("jump"), make("inner")

    async def test(clients: list[AgentClient]) -> bytes:
        (client,) = clients
        waits = asyncio.ensure_future(client.execute(["sleep", "30"]))
        await client.look(())
        jump.cut_sessions()
        with pytest.raises(TransportError, match="link lost"):
            await waits
        await client.connect()
        return await _run(client, "run", "echo", "again")

    assert together([_behind(jump, server, "pi5", home)], test) == b"again\n"
    assert logins(jump) == 2


def test_a_jump_host_is_verified_too(make: Callable[..., Sshd], home: Path) -> None:
    jump, server = make("jump"), make("inner")
    device = _behind(jump, server, "pi5", home)
    (home / "known").write_text(f"[127.0.0.1]:{server.port} {server.public_host_key()}\n")
    with pytest.raises(DeviceFault, match=rf"jump host .*:{jump.port}: its host key is unknown"):
        together([device], _nothing)
    assert logins(jump) == 0


async def _nothing(_: list[AgentClient]) -> None:
    return None


def test_a_jump_host_that_forbids_forwarding_is_named(make: Callable[..., Sshd], home: Path) -> None:
    jump, server = make("jump", "AllowTcpForwarding no"), make("inner")
    with pytest.raises(DeviceFault, match="must allow TCP forwarding"):
        together([_behind(jump, server, "pi5", home)], _nothing)


def test_jump_hosts_in_a_circle_are_refused(make: Callable[..., Sshd], home: Path) -> None:
    server = make("inner")
    device = server.device(ssh_options=["-J", "bastion"])
    (home / ".ssh/config").write_text("Host bastion\n  HostName 127.0.0.1\n  ProxyJump bastion\n")
    with pytest.raises(ConfigError, match="in a circle"):
        together([device], _nothing)


def test_a_proxy_command_is_honoured(make: Callable[..., Sshd]) -> None:
    server = make()
    relay = (
        "import socket,sys,threading,os;s=socket.create_connection((sys.argv[1],int(sys.argv[2])));"
        "threading.Thread(target=lambda:[s.sendall(d) for d in iter(lambda:os.read(0,65536),b'')],daemon=True).start();"
        "[os.write(1,d) for d in iter(lambda:s.recv(65536),b'')]"
    )
    program = server.folder / "relay.py"
    program.write_text(relay)
    device = server.device(ssh_options=["-o", f"ProxyCommand=python3 {program} %h %p"])

    async def test(clients: list[AgentClient]) -> bytes:
        return await _run(clients[0], "run", "echo", "through")

    assert together([device], test) == b"through\n"


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A real SSH agent; what it is called with are keys for it."""
    socket_path, ask = tmp_path / "agent", tmp_path / "ask"
    ask.write_text("#!/bin/sh\necho open sesame\n")
    ask.chmod(0o700)
    process = subprocess.Popen(["ssh-agent", "-D", "-a", str(socket_path)], stdout=subprocess.DEVNULL)
    while not socket_path.exists():
        assert process.poll() is None
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket_path))

    def add(*keys: Path) -> None:
        env = {**os.environ, "SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", *map(str, keys)], env=env, check=True, stdin=subprocess.DEVNULL)

    yield add
    process.kill()
    process.wait()


def _authorize(server: Sshd, key: Path) -> None:
    with Path(f"{server.identity}.pub").open("a") as file:
        file.write(Path(f"{key}.pub").read_text())


def test_a_key_with_a_passphrase_is_used_through_an_agent(
    make: Callable[..., Sshd], agent: Callable[..., None], tmp_path: Path
) -> None:
    server = make()
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    _authorize(server, locked)
    agent(locked)
    assert together([server.device(identity_file=str(locked))], _connected)


def test_an_agent_that_does_not_hold_it_is_no_help(
    make: Callable[..., Sshd], agent: Callable[..., None], tmp_path: Path
) -> None:
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    with pytest.raises(DeviceFault, match="login refused"):
        together([make().device(identity_file=str(locked))], _nothing)


def test_an_agent_with_many_keys_does_not_get_in_the_way_of_the_one_that_was_named(
    make: Callable[..., Sshd], agent: Callable[..., None], tmp_path: Path
) -> None:
    """Six wrong keys and a server hangs up."""
    server = make()
    locked = keygen(tmp_path / "locked", passphrase="open sesame")
    _authorize(server, locked)
    agent(*(keygen(tmp_path / f"key{n}") for n in range(8)), locked)
    assert together([server.device()], _connected)
    assert together([server.device(identity_file=str(locked))], _connected)
    with pytest.raises(DeviceFault, match=r"devices\.pi5\.identity_file"):
        together([server.device(identity_file=None)], _nothing)


async def _connected(clients: list[AgentClient]) -> bool:
    return all(client.connected for client in clients)


def test_a_front_that_does_not_leave_does_not_hold_us_up(
    make: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root sshd passes no signals on: only the connection can be given up, and the next one works."""
    monkeypatch.setattr(ssh_transport, "GONE_S", 0.1)
    server = make("stubborn", "ForceCommand trap '' TERM HUP; cat >/dev/null; exec sleep 300")
    device = server.device()

    async def body() -> None:
        transport = transports.open(device)
        channel = await transport.open()
        await channel.close()
        await channel.close()
        assert not transport._connection.is_open  # type: ignore[attr-defined]
        again = await transport.open()
        await again.close()
        await transport.close()

    asyncio.run(body())
    assert logins(server) == 2


def test_a_session_that_is_cancelled_half_open_costs_no_place(make: Callable[..., Sshd]) -> None:
    """asyncssh forgets it, the server opens it all the same: only a new connection is free of it for certain."""
    server = make("pi5", "MaxSessions 2")

    async def body() -> None:
        async with FaultProxy(server.port) as proxy:
            transport = transports.open(server.device(port=proxy.port))
            for _ in range(2):
                await (await transport.open()).close()
                proxy.swallow()
                opening = asyncio.ensure_future(transport.open())
                for _ in range(50):  # it has asked and gets no answer
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.gather(opening, return_exceptions=True)
                assert opening.cancelled()
                assert not transport._connection.is_open  # type: ignore[attr-defined]
                proxy.heal()
            client = AgentClient(transport, campaign="c", client_id="me")
            await client.connect()
            await client.close()
            await transport.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("python", "shown"),
    [
        ("python3", "exec python3 -I"),
        ("~/venv/bin/python", "exec ~/venv/bin/python -I"),
        ("/opt/my python", "exec '/opt/my python' -I"),
        ("~/my $python", "exec ~/'my $python' -I"),
    ],
)
def test_the_far_command(python: str, shown: str) -> None:
    command = ssh_transport.far_command(Device("d", "ssh", python=python))
    assert command.startswith(shown)
    assert "\\" not in command
    assert "!" not in command


def test_a_fifth_session_waits_for_one_of_four(make: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch) -> None:
    server = make()

    async def body() -> None:
        transport = transports.open(server.device())
        channels = [await transport.open() for _ in range(4)]
        fifth = asyncio.ensure_future(transport.open())
        await channels.pop().close()
        channels.append(await fifth)
        monkeypatch.setattr(ssh_transport, "OPEN_S", 0.1)
        with pytest.raises(TransportError, match="all sessions were in use"):
            await transport.open()
        for channel in channels:
            await channel.close()
        await transport.close()

    asyncio.run(body())
