"""An idle gate: the wait, just before a run starts, until nobody else uses the machine's processors.

/proc/stat counts the whole machine, whatever control group we are in; who is busy is looked up only after a first look
was in vain, because that look is work itself.
"""

import os
import time

from .sysfiles import read_text, rooted
from .telemetry import read_cpu_ticks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NAMED = 3  # of the busiest processes
_WORTH_NAMING = 0.02  # of one core


class NotIdle(Exception):
    """The machine was busy all the time: the sentence says how busy, for how long and with what, as ``seen`` does."""

    def __init__(self, seen: "dict[str, Any]", cores: int) -> None:
        super().__init__(_sentence(seen, cores))
        self.seen = seen


def wait_for_idle(gate: "dict[str, Any]", root: str, settle: "Callable[[float], object]") -> "dict[str, Any]":
    """Until a window of ``window_s`` is seen in which at most ``max_busy_share`` of all cores' time was spent; what was
    seen. Raises ``NotIdle`` with ``.seen`` after ``wait_s``. ``settle(seconds)`` waits, and may raise."""
    most, window_s, wait_s = float(gate["max_busy_share"]), float(gate["window_s"]), float(gate["wait_s"])
    began_s = time.monotonic()
    seen = {"max_busy_share": most}  # type: dict[str, Any]
    processes = {}  # type: dict[int, tuple[str, int]]
    ticks = read_cpu_ticks(root)
    if "cpu" not in ticks:
        return dict(seen, reason="this device does not say how busy it is (no /proc/stat)")
    while True:
        settle(window_s)
        before, ticks = ticks, read_cpu_ticks(root)
        busy, total = (ticks["cpu"][i] - before["cpu"][i] for i in (0, 1))
        share = max(0.0, busy / total) if total > 0 else 1.0  # counters that stand still say nothing of an idle machine
        waited_s = time.monotonic() - began_s
        seen.update(busy_share=round(share, 4), waited_s=round(waited_s, 3))
        if share <= most:
            return seen
        earlier, processes = processes, process_ticks(root)
        if waited_s >= wait_s and (earlier or not processes):
            cores = max(1, len(ticks) - 1)
            seen["busiest"] = busiest(earlier, processes, total / cores)
            raise NotIdle(seen, cores)


def process_ticks(root: str) -> "dict[int, tuple[str, int]]":
    """(name, ticks in user and kernel mode) of every process that can be seen, by its pid; not of this one."""
    found = {}  # type: dict[int, tuple[str, int]]
    try:
        names = os.listdir(rooted(root, "/proc"))
    except OSError:
        return found
    for name in names:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        text = read_text(rooted(root, "/proc/" + name + "/stat"))
        if not text:
            continue
        head, _, rest = text.rpartition(")")
        fields = rest.split()
        try:
            found[int(name)] = (head.partition("(")[2], int(fields[11]) + int(fields[12]))
        except (IndexError, ValueError):
            continue  # it ended while we read
    return found


def busiest(
    before: "dict[int, tuple[str, int]]", after: "dict[int, tuple[str, int]]", window_ticks: float
) -> "list[dict[str, Any]]":
    """Those that used most between two looks: ``pid``, ``comm``, ``cpu_share`` of one core."""
    found = []  # type: list[dict[str, Any]]
    for pid, (comm, ticks) in after.items():
        then = before.get(pid)
        used = ticks - then[1] if then is not None and then[0] == comm else ticks  # it came in between
        share = used / window_ticks if window_ticks > 0 else 0.0
        if share >= _WORTH_NAMING:
            found.append({"pid": pid, "comm": comm, "cpu_share": round(share, 3)})
    return sorted(found, key=lambda one: -one["cpu_share"])[:_NAMED]


def _sentence(seen: "dict[str, Any]", cores: int) -> str:
    names = [f"{one['comm']} (pid {one['pid']}, {one['cpu_share']:.0%} of a core)" for one in seen["busiest"]]
    how = (
        f"{seen['busy_share']:.0%} of its {cores} cores' time was spent, idle_gate allows {seen['max_busy_share']:.0%}"
    )
    who = ", ".join(names) or "nothing that can be seen from here"
    return f"the device was not idle for {seen['waited_s']:.0f} s: {how}. Busiest: {who}"
