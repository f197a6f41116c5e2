"""An environment: what one device was while it measured, as its records tell, with every value that was seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sidewinder.model import Json

from .tables import Row
from .words import size

_FACTS: Final[tuple[tuple[str, str], ...]] = (
    ("cpu", "processor"),
    ("board", "board"),
    ("cores", "logical cores"),
    ("physical_cores", "physical cores"),
    ("cpu_quota_cores", "CPU quota, cores"),
    ("ram_bytes", "memory"),
    ("accelerator", "accelerator"),
    ("gpu", "GPU"),
    ("arch", "machine"),
    ("os", "system"),
    ("kernel", "kernel"),
    ("governor", "governor"),
    ("device_python", "Python of the agent"),
    ("runtime", "runtime"),
    ("node", "node"),
    ("qos_class", "QoS class"),
    ("image_id", "image"),
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


def environments(rows: Iterable[Row], devices: Sequence[str]) -> list[Environment]:
    by_device: dict[str, list[Row]] = {}
    for row in rows:
        by_device.setdefault(row.get("device") or "?", []).append(row)
    found = []
    for device in dict.fromkeys((*devices, *by_device)):
        told = [r for r in by_device.get(device, []) if r.get("device_kind")]
        facts = tuple(f for column, name in _FACTS if (f := _fact(column, name, told)))
        engines = Counter(_engine(r) for r in told if r.get("backend_version") or r.get("backend_build"))
        kinds = list(dict.fromkeys(r["device_kind"] for r in told))
        if told:
            found.append(Environment(device, ", ".join(kinds), facts, tuple(e for e, _ in engines.most_common())))
    return found


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
    values = tuple(value if len(seen) == 1 else f"{value} ({n}×)" for value, n in seen.most_common(6))
    return Fact(name, values) if values else None


def _shown(column: str, value: Json) -> str:
    if column == "ram_bytes":
        return size(value)
    if column == "boot_id":
        return str(value)[:8]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _engine(row: Row) -> str:
    parts = [row.get("backend"), row.get("backend_version"), row.get("backend_build")]
    words = " ".join(dict.fromkeys(str(p) for p in parts if p))
    return f"{words} ({row['backend_binary']})" if row.get("backend_binary") else words
