"""A machine: what several devices of a lab turn out to be, when one boot id gives them away.

A config can only say that two devices have one address. Two names of one host, two ports, two pods of one node are seen
when they answer. Devices of one machine that do not take turns (``resource_group``) disturb each other's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sidewinder import ids
from sidewinder.model import Device

CONTROLLER_GROUP: Final = "controller"
_NAMED: Final = 8  # so many of a set are named; a fleet behind one host has many


def turn_groups(devices: Iterable[Device]) -> dict[str, str]:
    """Which devices take turns, by device: the group that was declared, one for all that is the controller's own
    machine, else one an address."""
    devices = list(devices)
    here = {device.resource_group for device in devices if device.kind == "local" and device.resource_group}
    return {device.id: _turn_group(device, here) for device in devices}


def _turn_group(device: Device, groups_here: set[str]) -> str:
    if device.kind == "local" or device.resource_group in groups_here:
        return CONTROLLER_GROUP
    return device.resource_group or _address(device)


def _address(device: Device) -> str:
    """What says that two devices are the same slot of the same machine, as far as a config can tell."""
    settings: Mapping[str, Any] = device.settings
    where = settings.get("host") or settings.get("pod") or settings.get("node_selector") or device.id
    return f"{device.kind}:{ids.canonical(where)}:{settings.get('port', '')}:{device.lock}"


def one_machine(groups: Mapping[str, str], boots: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Sets of devices that have shown one boot id and do not take turns, in the order of ``groups``. ``boots``: the
    boot ids that each device has shown; a device that showed none is in no set."""
    shown: dict[str, list[str]] = {}
    for device in groups:
        for boot in boots.get(device, ()):
            shown.setdefault(boot, []).append(device)
    sets = {tuple(devices): None for devices in shown.values() if len({groups[device] for device in devices}) > 1}
    return [one for one in sets if not any(set(one) < set(other) for other in sets)]


def sentence(devices: tuple[str, ...]) -> str:
    """What a person is told of such a set."""
    named = [*devices[:_NAMED], *([f"{len(devices) - _NAMED} more"] if len(devices) > _NAMED else [])]
    names = f"{', '.join(named[:-1])} and {named[-1]}"
    return (
        f"SAME MACHINE: {names} show one boot id: they are the same machine, or share its kernel (containers, pods of "
        "one node), and they take no turns: measured at the same time they disturb each other. Give them one "
        "`resource_group`; where they have parts of their own (two GPUs), one with a `group_max_concurrency` above 1"
    )
