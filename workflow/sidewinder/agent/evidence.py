"""Evidence: what the device can say about the conditions of a run, read before and after it, never during it."""

import os

from .cgroups import Cgroup
from .sysfiles import read_text, rooted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MEMINFO = {
    "MemAvailable": "mem_available_bytes",
    "MemFree": "mem_free_bytes",
    "SwapFree": "swap_free_bytes",
    "SwapTotal": "swap_total_bytes",
}


def read_memory(root: str = "/") -> "dict[str, int]":
    found = {}
    for line in (read_text(rooted(root, "/proc/meminfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name in _MEMINFO:
            words = value.split()
            if words and words[0].isdigit():
                found[_MEMINFO[name]] = int(words[0]) * (1024 if words[-1] == "kB" else 1)
    if "swap_total_bytes" in found and "swap_free_bytes" in found:
        found["swap_used_bytes"] = found["swap_total_bytes"] - found["swap_free_bytes"]
    return found


def read_pressure(root: str = "/") -> "dict[str, dict[str, float]]":
    """Pressure stall information by resource: ``some_avg10``, ``some_total_us``, ``full_avg10``, ``full_total_us``."""
    found = {}  # type: dict[str, dict[str, float]]
    for resource in ("cpu", "memory", "io"):
        values = {}  # type: dict[str, float]
        for line in (read_text(rooted(root, "/proc/pressure/" + resource)) or "").splitlines():
            words = line.split()
            pairs = dict(word.split("=", 1) for word in words[1:] if "=" in word)
            if words and "avg10" in pairs and "total" in pairs:
                values[words[0] + "_avg10"] = float(pairs["avg10"])
                values[words[0] + "_total_us"] = int(pairs["total"])
        if values:
            found[resource] = values
    return found


def _vmstat_oom_kills(root: str) -> "int | None":
    text = "\n" + (read_text(rooted(root, "/proc/vmstat")) or "")
    count = text.partition("\noom_kill ")[2].split(None, 1)
    return int(count[0]) if count else None


class Conditions:
    """One look at load, pressure, memory and counters."""

    def __init__(self, cgroup: Cgroup, root: str = "/") -> None:
        self.load = None  # type: list[float] | None
        try:
            self.load = [round(value, 2) for value in os.getloadavg()]
        except OSError:
            pass
        self.pressure = read_pressure(root)
        self.memory = read_memory(root)
        self.counters = cgroup.counters()
        self.vmstat_oom_kills = _vmstat_oom_kills(root)


def compare(before: Conditions, after: Conditions, wall_s: float) -> "dict[str, Any]":
    """What changed between two looks; a counter that either look lacks is absent."""
    out = {}  # type: dict[str, Any]
    if before.load is not None and after.load is not None:
        out["load"] = {"before": before.load, "after": after.load}
    if before.pressure and after.pressure:
        during = {}  # type: dict[str, dict[str, float]]
        for resource, values in after.pressure.items():
            for name, total in values.items():
                then = before.pressure.get(resource, {}).get(name)
                if name.endswith("_total_us") and then is not None:
                    stalled_us = total - then
                    kind = name[: -len("_total_us")]
                    entry = during.setdefault(resource, {})
                    entry[kind + "_us"] = stalled_us
                    if wall_s > 0:
                        entry[kind + "_share"] = round(min(1.0, stalled_us / 1e6 / wall_s), 6)
        out["pressure"] = {"before": before.pressure, "during": during, "after": after.pressure}
    if before.memory and after.memory:
        out["memory"] = {"before": before.memory, "after": after.memory}
    group = {}  # type: dict[str, Any]
    for name, value in after.counters.items():
        then_count = before.counters.get(name)
        if name == "memory_peak_bytes":
            group["memory_peak_bytes"] = value
            # The kernel counts the peak since the group was made: it is this run's only where the run raised it.
            if then_count is not None:
                group["memory_peak_raised"] = value > then_count
        elif then_count is not None:
            group[name] = value - then_count
    if group:
        out["cgroup"] = group
    if before.vmstat_oom_kills is not None and after.vmstat_oom_kills is not None:
        out["vmstat_oom_kills"] = after.vmstat_oom_kills - before.vmstat_oom_kills
    return out
