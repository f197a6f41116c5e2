"""A socket to an SSH server: its name looked up in a thread of its own, its addresses tried one after the other.

Threads of their own, because a resolver that does not answer holds its thread for 10 s or more: in the loop's default
executor those lookups keep parsers and everybody else waiting, and at the end they keep the program from leaving.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any

from .ssh_errors import Silent

# A packet that asks for a connection and is lost is sent again after 1, 3, 7 s. A fresh one every now and then finds a
# link that is back sooner.
TRY_S = 2.5

AddressInfo = tuple[Any, Any, int, str, Any]


async def open_socket(host: str, port: int, family: int, *, limit_s: float) -> socket.socket:
    """A connected socket. Raises ``OSError`` (of the last address), ``socket.gaierror``, ``Silent``."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    try:
        async with asyncio.timeout_at(end_s):
            found = await resolve(host, port, family)
    except TimeoutError:
        raise Silent(f"the name {host!r} was not resolved", limit_s) from None
    last: OSError | Silent = OSError(f"no address for {host}")
    while True:
        was_silent = False
        for number, info in enumerate(found):
            # a dead IPv6 way must leave time for the other one
            left_s = (end_s - loop.time()) / (len(found) - number)
            if left_s <= 0:
                raise last
            try:
                return await _connect(info, min(TRY_S, left_s))
            except TimeoutError as error:
                was_silent = True
                last = error if error.errno else Silent("nobody took the connection", limit_s)
            except OSError as error:
                last = error
        if not was_silent:
            raise last


async def _connect(info: AddressInfo, limit_s: float) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(limit_s):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def resolve(host: str, port: int, family: int) -> list[AddressInfo]:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(socket.gaierror):  # an address needs no thread
        return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    answer: asyncio.Future[list[AddressInfo]] = loop.create_future()

    def tell(found: list[AddressInfo] | None, error: OSError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def look() -> None:
        try:
            found, error = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM), None
        except OSError as raised:
            found, error = [], raised
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(tell, found, error)

    threading.Thread(target=look, name=f"resolve {host}", daemon=True).start()
    return await answer
