"""An environment: what one device was while it measured, as its records tell, with every value that was seen."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidewinder import machines
from sidewinder.model import EMPTY, Json, Plan

from .columns import clean
from .tables import Row
from .words import size

_FACTS: Final[tuple[tuple[str, str], ...]] = (
    ("node", "node"),
    ("node_pods", "other pods there"),
    ("pod", "pod"),
    ("namespace", "namespace"),
    ("cpu_quota_cores", "CPU limit"),
    ("memory_max_bytes", "memory limit"),
    ("qos_class", "QoS class"),
    ("cpu", "processor"),
    ("board", "board"),
    ("cores", "logical cores"),
    ("physical_cores", "physical cores"),
    ("ram_bytes", "memory"),
    ("accelerator", "accelerator"),
    ("gpu", "GPU"),
    ("arch", "machine"),
    ("os", "system"),
    ("kernel", "kernel"),
    ("governor", "governor"),
    ("device_python", "Python of the agent"),
    ("image", "image"),
    ("image_id", "image digest"),
    ("runtime", "runtime"),
    ("boot_id", "boot"),
    ("clock_offset_s", "clock offset, s"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    name: str
    values: tuple[str, ...]  # more than one: it changed while the sweep ran


@dataclass(frozen=True, slots=True)
class Environment:
    device: str
    kind: str
    facts: tuple[Fact, ...]
    engines: tuple[str, ...]
    warnings: tuple[str, ...] = ()  # what a person should know of the device itself


_DIGEST: Final = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}")  # whole in the record and in points.csv
# Of a pod it is said when there is none, because that is one of the arms.
_LIMITS: Final[Mapping[str, str]] = {"cpu_quota_cores": "cpu", "memory_max_bytes": "memory"}


def environments(
    rows: Iterable[Row],
    devices: Sequence[str],
    schedule: Mapping[str, Json] | None = None,
    turns: Mapping[str, str] = EMPTY,
) -> list[Environment]:
    """``schedule``: what ``schedule.json`` says, for the clocks and for warnings about devices. ``turns``: with whom
    each device takes turns, in words."""
    schedule = schedule or {}
    warned, clocks = _mapping(schedule.get("device_warnings")), _mapping(schedule.get("clock_offsets"))
    by_device: dict[str, list[Row]] = {}
    for row in rows:
        by_device.setdefault(row.get("device") or "?", []).append(row)
    found = []
    for device in dict.fromkeys((*devices, *by_device)):
        told = [r for r in by_device.get(device, []) if r.get("device_kind")]
        facts = tuple(f for column, name in _FACTS if (f := _fact(column, name, told)))
        if told and device in turns:
            facts = (*facts, Fact("takes turns", (clean(turns[device]),)))
        engines = Counter(_engine(r) for r in told if r.get("backend_version") or r.get("backend_build"))
        kinds = list(dict.fromkeys(r["device_kind"] for r in told))
        said = warned.get(device)
        warnings = tuple(clean(str(text)) for text in said) if isinstance(said, list) else ()
        if (drift := _drift(_mapping(clocks.get(device)))) is not None:
            facts = (*facts, drift)
        if told or warnings:
            found_engines = tuple(e for e, _ in engines.most_common())
            found.append(Environment(device, ", ".join(kinds), facts, found_engines, warnings))
    return found


def one_machine(rows: Iterable[Row], plan: Plan) -> list[str]:
    """A sentence for each set of devices that showed one boot id and took no turns, by the records alone."""
    boots: dict[str, set[str]] = {}
    nodes: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.get("device"):
            found = {str(row[column]) for column in ("boot_id", "node_boot_id") if row.get(column)}
            boots.setdefault(row["device"], set()).update(found)
            if row.get("node"):
                nodes.setdefault(row["device"], {})[str(row["node"])] = None
    groups = machines.turn_groups(plan.lab.devices.values())
    where = {device: " and ".join(seen) for device, seen in nodes.items()}
    return [machines.sentence(devices, where) for devices in machines.one_machine(groups, boots)]


def arms(found: Iterable[Environment], plan: Plan) -> dict[str, str]:
    """What each device is, in a few words: its kind, and of a pod where it runs and what it may use."""
    words = {device.id: device.kind for device in plan.lab.devices.values()}
    for one in found:
        facts = {fact.name: fact.values for fact in one.facts}
        node = facts.get("node")
        if node is not None:
            limits = [", ".join(facts[name]) for name in ("CPU limit", "memory limit") if name in facts]
            limit = "no limits" if limits == ["none", "none"] else ", ".join(limits)
            words[one.device] = f"pod on {', '.join(node)}" + (f": {limit}" if limit else "")
    return words


def turns(plan: Plan) -> dict[str, str]:
    """With whom each device takes turns, in words; a device that has its turns for itself is left out."""
    groups = machines.turn_groups(plan.lab.devices.values())
    found = {}
    for device, group in groups.items():
        others = [name for name, theirs in groups.items() if theirs == group and name != device]
        if others:
            limits = [plan.lab.devices[name].group_max_concurrency for name in (device, *others)]
            limit = min((one for one in limits if one is not None), default=1)
            found[device] = f"with {', '.join(others)}: {limit} at a time"
    return found


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _drift(clock: Mapping[str, Json]) -> Fact | None:
    drift, bound = clock.get("drift_ppm"), clock.get("drift_bound_ppm")
    if not isinstance(drift, int | float) or not isinstance(bound, int | float):
        return None
    return Fact("clock drift, ppm", (f"{drift:+.1f} ± {bound:.1f}",))


def _fact(column: str, name: str, rows: Sequence[Row]) -> Fact | None:
    seen: Counter[str] = Counter()
    if column == "clock_offset_s":
        offsets = [r[column] for r in rows if r.get(column) is not None]
        if not offsets:
            return None
        ends = dict.fromkeys((f"{min(offsets):+.4f}", f"{max(offsets):+.4f}"))
        return Fact(name, (" … ".join(ends),))
    for row in rows:
        if (value := row.get(column)) is not None:
            seen[_shown(column, value)] += 1
        elif row.get("pod") and _LIMITS.get(column, "?") in str(row.get("unlimited", "")).split(", "):
            seen["none"] += 1
    values = tuple(value if len(seen) == 1 else f"{value} ({n}×)" for value, n in seen.most_common(6))
    return Fact(name, values) if values else None


def _shown(column: str, value: Json) -> str:
    if column in ("ram_bytes", "memory_max_bytes"):
        return size(value)
    if column == "cpu_quota_cores":
        return f"{value:g} core" if value == 1 else f"{value:g} cores"
    if column == "boot_id":
        return str(value)[:8]
    if column == "image_id":
        return _DIGEST.sub(r"\1…", str(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _engine(row: Row) -> str:
    parts = [row.get("backend"), row.get("backend_version"), row.get("backend_build")]
    words = " ".join(dict.fromkeys(str(p) for p in parts if p))
    return f"{words} ({row['backend_binary']})" if row.get("backend_binary") else words
