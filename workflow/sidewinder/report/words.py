"""A word: how the report names a state, a failure class or a number for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sidewinder.model import FailureClass

# For each class: who is at fault, in words, and what usually helps.
FAILURE_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    FailureClass.TRANSPORT.value: ("device not reachable", "Look at the link or the host, then run the command."),
    FailureClass.PREEMPTED.value: ("evicted from its device", "Run the command when the device is free."),
    FailureClass.MEMORY.value: (
        "out of memory",
        "It does not fit on this device: that is a result, accept it or ask for less.",
    ),
    FailureClass.MEASUREMENT.value: ("ran and failed", "The program itself said no; its output says why."),
    FailureClass.PARSE.value: ("output not understood", "The raw output is kept beside the record."),
    FailureClass.CONFIG.value: ("cannot be run as configured", "Change the config; the device was not at fault."),
    FailureClass.DEVICE.value: ("device unfit", "Repair the device, then run the command: it is asked again first."),
    FailureClass.CANCELLED.value: ("stopped by a person", "Run the command to measure it."),
    FailureClass.INTERNAL.value: ("a bug in Sidewinder", "Please report it, with the record."),
    FailureClass.NOT_ATTEMPTED.value: (
        "never measured",
        "The reason says what stood in the way; when it is gone, run the command.",
    ),
    "missing": ("not started", "Run the command to measure it."),
    "broken": (
        "record unreadable",
        "The file under this name counts as not measured; running the command replaces it.",
    ),
}


def failure_words(failure_class: str | None, state: str | None = None) -> str:
    """The class in words; a class that this version does not know is shown as it is."""
    key = _key(failure_class, state)
    return FAILURE_WORDS[key][0] if key in FAILURE_WORDS else key or "failed, the record does not say why"


def advice(failure_class: str | None, state: str | None = None) -> str:
    key = _key(failure_class, state)
    return FAILURE_WORDS[key][1] if key in FAILURE_WORDS else ""


def _key(failure_class: str | None, state: str | None) -> str:
    if state == "hole":
        return FailureClass.NOT_ATTEMPTED.value
    return state if state in ("missing", "broken") else failure_class or ""


def count(n: int, one: str, many: str | None = None) -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def figure(value: float | int | None, digits: int = 3) -> str:
    """A measured number with ``digits`` significant figures, no exponent where a person would not write one."""
    if value is None:
        return "–"
    if isinstance(value, int) and abs(value) < 10**6:
        return f"{value:,}"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 10 ** (digits - 1) and size < 1e9:
        return f"{value:,.0f}"
    if 1e-3 <= size < 1e9:
        decimals = digits - 1
        while size >= 10 and decimals > 0:
            size /= 10
            decimals -= 1
        while size < 1 and decimals < 6:
            size *= 10
            decimals += 1
        return f"{value:,.{decimals}f}"
    return f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A length of time: ``840 ms``, ``12.4 s``, ``2 min 5 s``, ``3 h 12 min``."""
    if value is None:
        return "–"
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours / 24:.1f} days"


def size(value: int | None) -> str:
    if value is None:
        return "–"
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")
