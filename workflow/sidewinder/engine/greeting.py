"""A greeting: each device that has something to run is called once before the first run of a sweep starts.

Devices that turn out to be one machine are told to a person before anything is measured on it. It costs a sweep
the slowest of these calls, at most ``GREET_S``, once: the connections are kept, and a device that does not answer by
then is met when it starts its first run. So is a pod that has to be made first: the others do not wait for that, and
what it is one machine with is told a moment after it is there. Where all devices take turns anyway nobody is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from sidewinder import machines
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.model import Device

from .devices import DeviceLink

GREET_S = 2.0
LATE_S = 1.0  # those who answer later are told of together


class Greeting:
    """Devices by the core's names for them (``0:pi5``)."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._links: dict[str, DeviceLink] = {}
        self._groups: dict[str, str] = {}
        self._uncalled: set[str] = set()
        self._guests: list[str] = []
        self._met: set[str] = set()
        self._told: set[tuple[str, ...]] = set()
        self._calling: asyncio.Task[None] | None = None
        self._late: asyncio.TimerHandle | None = None

    def know(self, device: Device, link: DeviceLink, *, is_well: bool) -> None:
        """``device`` as the core sees it: its group is the one in which turns are taken. One that was not well when it
        was last seen is met when it is asked anyway."""
        self._links[device.id] = link
        self._groups[device.id] = device.resource_group or device.id
        if is_well:
            self._uncalled.add(device.id)
        link.met = partial(self._has_answered, device.id)

    def expect(self, device: str) -> None:
        """It has something to run."""
        if device in self._uncalled:
            self._uncalled.discard(device)
            self._guests.append(device)

    async def over(self) -> None:
        """Whoever wants to start a run waits for this."""
        if self._guests and self._calling is None:
            self._calling = asyncio.get_running_loop().create_task(self._call_all(), name="greeting")
        if self._calling is not None:
            await asyncio.shield(self._calling)

    async def close(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._look()
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.gather(self._calling, return_exceptions=True)

    def _has_answered(self, device: str) -> None:
        if device in self._met:
            return
        self._met.add(device)
        if self._calling is None and self._late is None:
            self._late = asyncio.get_running_loop().call_later(LATE_S, self._look)

    async def _call_all(self) -> None:
        try:
            while self._guests:
                guests, self._guests = self._guests, []
                if len({self._groups[device] for device in (*guests, *self._met)}) < 2:
                    continue
                calls = [asyncio.ensure_future(self._call(guest)) for guest in guests]
                try:
                    await asyncio.wait(calls, timeout=GREET_S)
                finally:
                    for call in calls:
                        call.cancel()  # its device is called anew when it is its turn, with all the patience there is
                    await asyncio.gather(*calls, return_exceptions=True)
                self._look()
        finally:
            self._calling = None

    async def _call(self, device: str) -> None:
        with suppress(TransportError, DeviceFault, ConfigError):  # the start tells, to whom it concerns
            if await self._links[device].is_there():
                async with self._links[device].client():
                    pass

    def _look(self) -> None:
        self._late = None
        facts = {device: self._links[device].facts for device in self._met}
        boots = {device: machines.boots_of(facts[device]) for device in self._met}
        for devices in machines.one_machine(self._groups, boots):
            if devices not in self._told:
                self._told.add(devices)
                nodes = {_name(device): machines.node_of(facts[device]) or "" for device in devices}
                self._tell(machines.sentence(tuple(_name(device) for device in devices), nodes))


def _name(device: str) -> str:
    """What its lab calls it."""
    return device.partition(":")[2] or device
