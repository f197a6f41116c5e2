"""A transport: opens a byte channel to a fresh agent front on one device, and translates what can go wrong there.

The agent protocol (start, attach, fetch, ...) is the same over every channel and lives in ``transports/client.py``.
"""

from __future__ import annotations

from typing import Protocol

from sidewinder.model import Device


class Channel(Protocol):
    """Bytes to and from one agent front. All methods raise ``TransportError`` when the link is gone."""

    async def read(self) -> bytes:
        """The next bytes, at least one; ``b""`` when the front is gone."""

    async def write(self, data: bytes) -> None: ...

    async def close(self) -> None:
        """Bounded and never raising; the front leaves at the end of its input."""

    async def exit_code(self) -> int | None:
        """How the far command ended, waited for a moment after ``read`` gave ``b""``; None: not known (a lost link).

        Tells "python is not there" (127) from a link that broke, before the front has said its first word.
        """

    def diagnostics(self) -> str:
        """What the far end said beside the frames (stderr), for messages; at most a few KiB."""


class Transport(Protocol):
    """One device's way in. Raises ``TransportError`` (try again), ``DeviceFault`` (do not), or ``ConfigError`` (a file
    or setting on this machine: a key that is missing), nothing else.

    A transport may also have ``agent_options`` (what the shipped agent is told: ``state_dir``, ``boot_id``), ``facts``
    (what the way alone knows of the device, read after ``open``), ``tell`` (set by who opens: takes sentences about why
    that lasts), ``check`` (takes what the agent says of the device, once a boot, and raises ``DeviceFault`` where that
    is not the device asked for) and ``is_there()`` (a coroutine: whether ``open`` would neither make the device nor
    wait for it). One whose device forgets what ran in an earlier boot has ``death_of(boot)`` (a coroutine: how that
    ended, as a ``Failure`` with cause and proof; None: it is not known to be over) and ``ran_in(boot)`` (it is told the
    boots of an earlier controller's attempts)."""

    device: Device

    async def open(self) -> Channel:
        """Start the bootstrap command on the device; the caller then sends the agent's source."""

    async def close(self) -> None: ...
