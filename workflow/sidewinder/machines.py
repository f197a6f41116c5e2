"""A machine: what several devices of a lab turn out to be, when one boot id gives them away.

A config can only say that two devices have one address. Two names of one host, two ports, two pods of one node, a pod
and the host that is its node are seen when they answer: the boot id in a container is its kernel's. Devices of one
machine that do not take turns (``resource_group``) disturb each other's figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """What says that two devices are the same slot of the same machine, as far as a config can tell. Each pod is a slot
    of its own: two that may be on one node (one ``node_selector``) are told of when they are."""
    settings: Mapping[str, Any] = device.settings
    where = device.id if device.kind == "kubernetes" else settings.get("host") or device.id
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


def boots_of(facts: Mapping[str, Any]) -> set[str]:
    """What gives the machine of a device away: its kernel's boot id, and of a pod also what its node says of itself,
    because a sandboxed container (gVisor, Kata) has a kernel of its own."""
    pod = _mapping(facts.get("pod"))
    found = (facts.get("boot_id"), _mapping(pod.get("node_info")).get("boot_id"))
    return {str(boot) for boot in found if boot}


def node_of(facts: Mapping[str, Any]) -> str | None:
    """The node on which a device that is a pod runs; None: it is none, or nobody told."""
    node = _mapping(facts.get("pod")).get("node")
    return str(node) if node else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def sentence(devices: tuple[str, ...], nodes: Mapping[str, str] | None = None) -> str:
    """What a person is told of such a set. ``nodes``: the node of each device that is a pod."""
    on = {device: node for device in devices if (node := (nodes or {}).get(device))}
    names = _listed([f"{device} (a pod on {on[device]})" if device in on else device for device in devices])
    where = list(dict.fromkeys(on.values()))
    if not on:
        what = "they are the same machine, or share its kernel (containers, pods of one node)"
    elif len(where) == 1:
        what = f"they share the machine of {where[0]}"
    else:
        what = f"they share one machine, of which {_listed(where)} are nodes (as with kind or minikube)"
    return (
        f"SAME MACHINE: {names} show one boot id: {what}, and they do not all take turns: measured at the same time "
        "they disturb each other. Give them one `resource_group`; where they have parts of their own (two GPUs), one "
        "with a `group_max_concurrency` above 1"
    )


def _listed(names: Sequence[str]) -> str:
    named = [*names[:_NAMED], *([f"{len(names) - _NAMED} more"] if len(names) > _NAMED else [])]
    return f"{', '.join(named[:-1])} and {named[-1]}"
