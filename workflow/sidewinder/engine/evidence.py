"""Evidence: what the core is told of a run that came home, with a sentence for people where the figures are known.

The core decides by state, exit code and counts alone; the sentence names the limit that was met and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidewinder.core.policy import interruption
from sidewinder.errors import ConfigError
from sidewinder.model import Evidence, RawResult

from .jobs import Job

_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def evidence_of(raw: RawResult, job: Job) -> Evidence:
    detail = raw.detail or _sentence(raw, job)
    if not job.is_measured:  # a rule's outputs are as good after a sleep as without
        return Evidence(raw.state, raw.returncode, raw.error, detail, raw.oom_kills, raw.duration_s)
    stamps = _mapping(raw.evidence.get("stamps"))
    slept_s, step_s = _seconds(stamps, "suspended_s"), _seconds(stamps, "clock_step_s")
    return Evidence(raw.state, raw.returncode, raw.error, detail, raw.oom_kills, raw.duration_s, slept_s, step_s)


def interruption_of(raw: RawResult) -> dict[str, float]:
    """The figures behind ``core.policy.interruption``, for the record of the attempt; empty where there was none."""
    stamps = _mapping(raw.evidence.get("stamps"))
    slept_s, step_s = _seconds(stamps, "suspended_s"), _seconds(stamps, "clock_step_s")
    told = Evidence(raw.state, duration_s=raw.duration_s, suspended_s=slept_s, clock_step_s=step_s)
    if interruption(told) is None:
        return {}
    figures = {"suspended_s": slept_s, "clock_step_s": step_s, "duration_s": raw.duration_s}
    return {name: value for name, value in figures.items() if value is not None}


def _sentence(raw: RawResult, job: Job) -> str | None:
    if raw.oom_kills and raw.returncode != 0:
        return out_of_memory(raw)
    if raw.state == "timeout":
        where = "extra.timeout_s" if job.is_measured else "resources: runtime, in minutes"
        return (
            f"the run did not end within its time limit{_limit(job)}; it was stopped with all its processes. "
            f"If it needs longer, raise its time limit ({where})"
        )
    if raw.state == "done" and raw.returncode in (-15, 143):
        return "the run was ended by SIGTERM from outside, as when a machine is drained or shut down"
    return None


def _limit(job: Job) -> str:
    try:
        return f" of {job.build().timeout_s:g} s"
    except ConfigError:  # an adopted run whose secret is not in this controller's environment: it ran all the same
        return ""


def out_of_memory(raw: RawResult) -> str:
    counted = "on this machine" if raw.evidence.get("oom_source") == "vmstat" else "in its control group"
    kills = f"{raw.oom_kills} OOM kill{'s' if raw.oom_kills != 1 else ''} counted {counted}"
    limit = _mapping(_mapping(raw.evidence.get("placement")).get("before")).get("memory_max_bytes")
    if isinstance(limit, int):
        kills += f", whose limit is {_bytes(limit)}"
    return (
        f"the kernel killed the run for lack of memory ({kills}). It does not fit there: give it more memory, "
        "or ask for less (a smaller model, context or batch)"
    )


def _seconds(stamps: Mapping[str, Any], name: str) -> float | None:
    value = stamps.get(name)
    return float(value) if isinstance(value, int | float) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _bytes(count: int) -> str:
    name, size = next(((name, size) for name, size in _UNITS if count >= size), ("bytes", 1))
    return f"{count / size:.4g} {name}"
