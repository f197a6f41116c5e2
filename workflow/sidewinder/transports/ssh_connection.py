"""An SSH connection: one login that is kept, with the jump hosts it goes through.

Jump hosts are shared by the devices behind them, per event loop. So are turns to log in: a server that gets many
strangers at once drops some of them at random (``MaxStartups``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import Device

from .ssh_errors import Silent, translate, translate_settings
from .ssh_sockets import open_socket
from .ssh_target import CONNECT_S, LOGIN_S, Target, jump_target, target_of

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection, SSHKey

SESSIONS = 4  # at a time on one connection: OpenSSH's MaxSessions is 10, and it frees a session late
LOGINS = 2  # at a time to one server
DROPPED_S = (0.1, 0.3, 0.9)  # before it is asked again, where a server that let others in cuts a login short
WARM_UP_S = 5.0
GONE_S = 2.0
NEW_KEY = "^ssh-ed25519"  # of a server with several keys that is not known yet, this one is shown to the person

Passed = tuple[tuple[str, str, int], ...]


@dataclass(slots=True)
class Connection:
    """A connection that is logged in."""

    ssh: SSHClientConnection
    target: Target
    sessions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SESSIONS))

    @property
    def is_open(self) -> bool:
        return not self.ssh.is_closed()

    async def close(self) -> None:
        """Bounded: a close that is not answered ends in an abort."""
        if self.is_open:
            self.ssh.close()
            if not await within(GONE_S, self.ssh.wait_closed()):
                self.ssh.abort()


async def within(limit_s: float, awaitable: Awaitable[Any]) -> bool:
    """Whether it was over in time, with or without an error."""
    task = asyncio.ensure_future(awaitable)
    done, _ = await asyncio.wait([task], timeout=limit_s)
    if not done:
        task.cancel()
    elif not task.cancelled():
        task.exception()  # seen
    return bool(done)


@dataclass(slots=True)
class _Jump:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    users: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Door:
    """Where several may want to log in at once."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOGINS))
    lets_in: bool = False  # somebody came through: it is an SSH server, and one that knows us


class _Shared:
    """What the devices of one event loop share."""

    def __init__(self) -> None:
        self.doors: dict[tuple[str, int], _Door] = {}
        self.jumps: dict[tuple[Any, ...], _Jump] = {}

    def door(self, target: Target) -> _Door:
        return self.doors.setdefault((target.host, target.port), _Door())


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


def _here() -> _Shared:
    return _shared.setdefault(asyncio.get_running_loop(), _Shared())


class Dialler:
    """One device's way in. ``users`` of jump hosts are diallers: the last one who leaves closes the jump."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.answered = False  # this device has let us in before

    async def log_in(self) -> Connection:
        """Raises ``TransportError``, ``DeviceFault``, ``ConfigError``."""
        _quiet()
        target = self.target()
        connection = await self._log_in(target, await self._way(target, (target.address,)))
        self.answered = True
        return connection

    async def servers(self) -> AsyncIterator[tuple[Target, SSHKey | None]]:
        """Every server on the way, nearest first and the device last, with the key that it shows. Nothing happens there
        but a key exchange; the next one is looked at only through those that are trusted by then."""
        _quiet()
        target, via = self.target(), None
        for hop in target.jumps:
            jump = self.jump(hop)
            yield jump, await self._shown_key(jump, via or await self._way(jump, (target.address, jump.address)))
            via = await self._jump(jump, via, (target.address,))
        yield target, await self._shown_key(target, via)

    async def _shown_key(self, target: Target, via: Connection | None) -> SSHKey | None:
        from asyncssh import get_server_host_key

        try:
            sock = await _socket(target, via)
            async with asyncio.timeout(CONNECT_S + LOGIN_S):
                return await get_server_host_key(
                    target.name,
                    target.port,
                    sock=sock,
                    tunnel=via.ssh if via else None,
                    config=target.arguments["config"],
                    server_host_key_algs=NEW_KEY,
                )
        except Exception as error:
            raise self._ours(error, target, None) from error

    def target(self) -> Target:
        with self._settings():
            return target_of(self.device)

    def jump(self, hop: str) -> Target:
        with self._settings():
            return jump_target(self.device, hop)

    async def leave(self) -> None:
        """Give the jump hosts back."""
        shared = _here()
        for name, jump in list(shared.jumps.items()):
            jump.users.discard(id(self))
            if not jump.users and jump.connection is not None:
                del shared.jumps[name]
                await jump.connection.close()

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            ours = translate_settings(error, self.device.id)
            if ours is None or ours is error:
                raise
            raise ours from error

    async def _way(self, target: Target, passed: Passed) -> Connection | None:
        """The connection to the last jump host before ``target``; None: there is none. ``passed``: who waits for it."""
        via = None
        for hop in target.jumps:
            via = await self._jump(self.jump(hop), via, passed)
        return via

    async def _jump(self, target: Target, via: Connection | None, passed: Passed) -> Connection:
        if target.address in passed:  # it would wait for itself
            key, hint = f"devices.{self.device.id}", "see ProxyJump in ~/.ssh/config and ssh_options"
            raise ConfigError("the jump hosts lead in a circle", key=key, value=target.name, hint=hint)
        shared = _here()
        jump = shared.jumps.setdefault((*target.address, target.known.own, via and via.target.address), _Jump())
        jump.users.add(id(self))
        async with jump.lock:
            if jump.connection is None or not jump.connection.is_open:
                jump.connection = None
                via = via or await self._way(target, (*passed, target.address))
                jump.connection = await self._log_in(target, via)
                await _warm_up(jump.connection)
            return jump.connection

    async def _log_in(self, target: Target, via: Connection | None) -> Connection:
        door, loop = _here().door(target), asyncio.get_running_loop()
        async with door.turns:
            for pause_s in (*DROPPED_S, None):
                began_s = loop.time()
                try:
                    connection = await self._log_in_once(target, via)
                    door.lets_in = True
                    return connection
                except TransportError as error:
                    # Others (or our own last login, which sshd still counts) are at the door: MaxStartups.
                    dropped = _is_cut(error.__cause__) and loop.time() - began_s < LOGIN_S / 2
                    if pause_s is None or not dropped or not door.lets_in:
                        raise
                await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    async def _log_in_once(self, target: Target, via: Connection | None) -> Connection:
        import asyncssh

        greeter = _greeter()
        try:
            sock = await _socket(target, via)
            address = sock.getpeername()[0] if sock is not None else ""
            more = (
                {} if target.known.knows(target.key_name, address, target.port) else {"server_host_key_algs": NEW_KEY}
            )
            try:
                async with asyncio.timeout(CONNECT_S + LOGIN_S):
                    ssh = await asyncssh.connect(
                        target.name,
                        sock=sock,
                        tunnel=via.ssh if via else None,
                        known_hosts=target.known.load(),
                        client_factory=lambda: greeter,
                        **target.arguments,
                        **more,
                    )
            except TimeoutError as error:
                if error.errno:
                    raise
                raise Silent("the login was not over", CONNECT_S + LOGIN_S) from None
            except BaseException:
                if sock is not None:
                    asyncio.get_running_loop().call_soon(sock.close)
                raise
        except Exception as error:
            raise self._ours(error, target, greeter.offered) from error
        return Connection(ssh, target)

    def _ours(self, error: Exception, target: Target, offered: SSHKey | None) -> Exception:
        ours = translate(error, target, offered=offered, answered_before=self.answered)
        return error if ours is None else ours


def _is_cut(error: BaseException | None) -> bool:
    from asyncssh import ConnectionLost

    return isinstance(error, (ConnectionResetError, ConnectionLost, BrokenPipeError))


async def _socket(target: Target, via: Connection | None) -> socket.socket | None:
    """None: asyncssh makes its own way, through the jump host or the proxy command."""
    if via is not None or target.has_proxy_command:
        return None
    return await open_socket(target.host, target.port, target.options.family, limit_s=CONNECT_S)


async def _warm_up(connection: Connection) -> None:
    """One command that does nothing: only then sshd stops to hold back small packets (44 ms a round trip to 4 ms).

    A jump host that forbids commands is as good a jump host.
    """
    import asyncssh

    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        async with asyncio.timeout(WARM_UP_S):
            process = await connection.ssh.create_process("true", encoding=None, request_pty=False)
        if not await within(WARM_UP_S, process.wait_closed()):
            process.close()


def _greeter() -> Any:
    from asyncssh import SSHClient

    class Greeter(SSHClient):
        """Remembers the host key that was offered and is not trusted; it trusts none."""

        offered: SSHKey | None = None

        def connection_made(self, conn: Any) -> None:
            """The end of a connection is told a few turns of the loop late. asyncssh compares algorithms in a task; a
            server that hangs up in the same turn would win over what that task found (its error is dropped), and "no
            algorithm in common" would be a lost link that is tried again."""
            lost, loop = conn.connection_lost, asyncio.get_running_loop()

            def later(exc: Exception | None = None, turns: int = 3) -> None:
                if turns:
                    loop.call_soon(later, exc, turns - 1)
                else:
                    lost(exc)

            conn.connection_lost = later

        def validate_host_public_key(self, host: str, addr: str, port: int, key: SSHKey) -> bool:
            self.offered = key
            return False

        def validate_host_ca_key(self, host: str, addr: str, port: int, key: SSHKey) -> bool:
            self.offered = key
            return False

    return Greeter()


def _quiet() -> None:
    """At INFO asyncssh logs commands, at DEBUG environments: both stay out of every log."""
    log = logging.getLogger("asyncssh")
    if log.level < logging.WARNING:
        log.setLevel(logging.WARNING)
