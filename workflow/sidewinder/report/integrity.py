"""A doubt: a measured point whose own record says that its number may not mean what it seems to.

The limits are stated on the page. A doubt never removes a point and never changes a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from .tables import Row
from .words import figure, seconds

SPREAD_PCT: Final = 10.0
BUSY_SHARE: Final = 0.8
PRESSURE_PCT: Final = 10.0
THROTTLED_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    run_id: str
    device: str
    figure: str


@dataclass(frozen=True, slots=True)
class Doubt:
    title: str
    meaning: str
    findings: tuple[Finding, ...]


def _throttled(row: Row) -> str | None:
    if row.get("throttled"):
        return f"at most {row['temp_c']:.0f} °C" if row.get("temp_c") is not None else "throttled"
    return None


def _spread(row: Row) -> str | None:
    wide = {c.removeprefix("cv_pct."): v for c, v in row.items() if c.startswith("cv_pct.") and v > SPREAD_PCT}
    return ", ".join(f"{name} ± {figure(v)} %" for name, v in sorted(wide.items())) or None


def _above_peak(row: Row) -> str | None:
    used = row.get("bw_util_pct")
    return f"{figure(used)} % of the declared peak" if used is not None and used > 100 else None


def _not_busy(row: Row) -> str | None:
    """Threads that do not get their cores: the only sign of a contended run that exits 0 with tidy output."""
    threads, busy = row.get("threads"), row.get("cpu_over_wall")
    if threads is None or busy is None:
        return None
    limits = [v for v in (threads, row.get("cores"), row.get("cpu_quota_cores")) if v]
    expected = min(limits) if limits else threads
    if busy < BUSY_SHARE * expected:
        return f"{figure(busy)} cores busy of {figure(expected)}"
    return None


def _load(row: Row) -> str | None:
    load, cores = row.get("load_before"), row.get("cores")
    if load is None or cores is None or load <= cores:
        return None
    return f"load {figure(load)} on {cores} cores"


def _pressure(row: Row) -> str | None:
    high = {
        what: value
        for what in ("memory", "io", "cpu")
        if (value := row.get(f"pressure_{what}_during_pct")) is not None and value > PRESSURE_PCT
    }
    return ", ".join(f"{what} {figure(v)} %" for what, v in high.items()) or None


def _quota(row: Row) -> str | None:
    held, wall = row.get("cgroup_throttled_s"), row.get("wall_s") or row.get("duration_s")
    if not held or not wall or held < THROTTLED_SHARE * wall:
        return None
    return f"held back {seconds(held)} in {seconds(wall)}"


_RULES: Final[tuple[tuple[str, str, Callable[[Row], str | None]], ...]] = (
    ("Throttled", "The device slowed itself down: the number is the heat's.", _throttled),
    (
        "Wide spread",
        f"The repeats of one run spread by more than {SPREAD_PCT:.0f} % of their mean (standard deviation).",
        _spread,
    ),
    (
        "Above the declared peak",
        "More bandwidth than the device is said to have: a size or the declaration is wrong.",
        _above_peak,
    ),
    (
        "Did not get its cores",
        f"Less than {BUSY_SHARE:.0%} of the cores it asked for were busy: most likely something else ran.",
        _not_busy,
    ),
    ("Load before the run", "The load average (1 min) was above the number of cores before it started.", _load),
    (
        "Pressure during the run",
        f"Something waited more than {PRESSURE_PCT:.0f} % of the time for processor, memory or disk.",
        _pressure,
    ),
    ("Held back by a CPU quota", f"A quota stopped it for more than {THROTTLED_SHARE:.0%} of the time.", _quota),
)


def doubts(rows: Iterable[Row]) -> list[Doubt]:
    """What to distrust, by rule; rules that found nothing are left out."""
    found: list[list[Finding]] = [[] for _ in _RULES]
    for row in rows:
        if row.get("status") != "ok":
            continue
        for i, (_, _, rule) in enumerate(_RULES):
            if (shown := rule(row)) is not None:
                found[i].append(Finding(row["run_id"], row.get("device", ""), shown))
    return [Doubt(t, m, tuple(f)) for (t, m, _), f in zip(_RULES, found, strict=True) if f]
