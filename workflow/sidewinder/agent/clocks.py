"""A stamp: the same instant on the wall clock, the monotonic clock and the clock that also counts suspend."""

import time

from .sysfiles import read_text

_CLOCK_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)  # Linux; elsewhere suspend cannot be told apart
_TOGETHER_NS = 100000  # closer than this the readings of a stamp are one instant
_TRIES = 5


def lease_clock_s() -> float:
    """Seconds that go on while the machine sleeps: a laptop that was shut for an hour has lost its lease."""
    return time.monotonic() if _CLOCK_BOOTTIME is None else time.clock_gettime(_CLOCK_BOOTTIME)


def stamp() -> "dict[str, int]":
    """All clocks at once, as far as that goes: who loses the processor between two of them would look like a step, so
    the closest of a few tries is taken. ``within_ns``: how far apart its readings are."""
    best = {}  # type: dict[str, int]
    for _ in range(_TRIES):
        taken = {"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}
        if _CLOCK_BOOTTIME is not None:
            taken["boottime_ns"] = time.clock_gettime_ns(_CLOCK_BOOTTIME)
        taken["within_ns"] = time.monotonic_ns() - taken["monotonic_ns"]
        if not best or taken["within_ns"] < best["within_ns"]:
            best = taken
        if best["within_ns"] <= _TOGETHER_NS:
            break
    return best


def stamps_between(start: "dict[str, int]", end: "dict[str, int]") -> "dict[str, object]":
    """Both stamps, how far the wall clock was set between them (``clock_step_s``) and how long the machine slept.

    Without a clock that counts sleep (macOS) ``suspended_s`` is absent, and a sleep is part of ``clock_step_s``.
    """
    awake_ns = end["monotonic_ns"] - start["monotonic_ns"]
    out = {"start": start, "end": end}  # type: dict[str, object]
    slept_ns = 0
    if "boottime_ns" in start and "boottime_ns" in end:
        slept_ns = end["boottime_ns"] - start["boottime_ns"] - awake_ns
        out["suspended_s"] = max(0, slept_ns) / 1e9  # below zero by how far a stamp's readings are apart
    out["clock_step_s"] = (end["wall_ns"] - start["wall_ns"] - awake_ns - slept_ns) / 1e9
    return out


def boot_id() -> str:
    """What changes with every boot. Empty where the system tells nothing."""
    found = read_text("/proc/sys/kernel/random/boot_id")
    if found:
        return found.strip()
    from .processes import command_output

    told = command_output(["sysctl", "-n", "kern.bootsessionuuid"]) or command_output(["sysctl", "-n", "kern.boottime"])
    return told.strip() if told else ""


def process_start(pid: int) -> "int | None":
    """Start time of a process in clock ticks since boot: with the pid it names a process for good. None: not there,
    or a zombie, which is dead although nobody took notice (in a container whose first process reaps none, for ever)."""
    text = read_text(f"/proc/{pid}/stat")
    if not text:
        return None
    try:
        fields = text.rsplit(")", 1)[1].split()
        return None if fields[0] in "ZX" else int(fields[19])
    except (IndexError, ValueError):
        return None
