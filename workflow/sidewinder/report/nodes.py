"""A node: the machine that a pod's points really ran on. A device whose points ran on several is several series.

The pod is the device and the cluster chooses its node, so one device may have been two machines during one sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from .tables import Row
from .words import count

MOST_NAMED = 6


def spread(rows: Iterable[Row]) -> dict[str, Mapping[str, int]]:
    """How many planned points ran on each node, of the devices whose points ran on more than one."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        if row.get("planned") and row.get("node") and row.get("device"):
            found.setdefault(row["device"], Counter())[row["node"]] += 1
    return {device: nodes for device, nodes in found.items() if len(nodes) > 1}


def apart(rows: Sequence[Row]) -> list[Row]:
    """The rows with such a device called by its node as well: ``k8s on node1``. What ran nowhere is told apart too.
    ``one_device`` is what they have in common."""
    devices = spread(rows)
    return [
        {**row, "device": _name(row), "one_device": row["device"]} if row.get("device") in devices else row
        for row in rows
    ]


def _name(row: Row) -> str:
    return f"{row['device']} on {row['node']}" if row.get("node") else f"{row['device']}, on no node"


def sentences(rows: Iterable[Row]) -> list[str]:
    """One for each such device, for the top of the page."""
    return [_sentence(device, nodes) for device, nodes in spread(rows).items()]


def _sentence(device: str, nodes: Mapping[str, int]) -> str:
    named = [f"{node} ({count(n, 'point')})" for node, n in sorted(nodes.items(), key=lambda item: (-item[1], item[0]))]
    if len(named) > MOST_NAMED:
        named = [*named[:MOST_NAMED], f"{len(named) - MOST_NAMED} more"]
    return (
        f"{len(nodes)} NODES: the points of {device} ran on {', '.join(named[:-1])} and {named[-1]}. Those are "
        f"{len(nodes)} machines, so they are {len(nodes)} series below and in no mean together. "
        f"To measure on one: devices.{device}.node_name"
    )
