"""Evidence: what the core is told of a run that came home, with a sentence for people where the figures are known.

The core decides by state, exit code and counts alone; the sentence names the limit that was met and what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidewinder.core.policy import interruption
from sidewinder.errors import ConfigError
from sidewinder.model import Device, Evidence, Json, RawResult

from .jobs import Job

# What holds a run back, and how a sentence calls it.
_LIMITS = {
    "cpu_quota_cores": "CPU quota in cores",
    "cpu_quota_us": "CPU quota in us",
    "cpu_period_us": "its period in us",
    "memory_max_bytes": "memory limit",
    "cpuset": "CPUs",
    "cpu_weight": "CPU weight",
    "cpu_shares": "CPU shares",
}
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def evidence_of(raw: RawResult, job: Job) -> Evidence:
    detail = raw.detail or _sentence(raw, job)
    if not job.is_measured:  # a rule's outputs are as good after a sleep as without
        return Evidence(raw.state, raw.returncode, raw.error, detail, raw.oom_kills, raw.duration_s)
    stamps = _mapping(raw.evidence.get("stamps"))
    slept_s, step_s = _seconds(stamps, "suspended_s"), _seconds(stamps, "clock_step_s")
    return Evidence(
        raw.state,
        raw.returncode,
        raw.error,
        detail,
        raw.oom_kills,
        raw.duration_s,
        slept_s,
        step_s,
        _wrong_spec(raw, job.link.device),
        _changed(raw),
    )


def interruption_of(raw: RawResult) -> dict[str, Json]:
    """The figures behind ``core.policy.interruption``, for the record of the attempt; empty where there was none."""
    stamps = _mapping(raw.evidence.get("stamps"))
    slept_s, step_s = _seconds(stamps, "suspended_s"), _seconds(stamps, "clock_step_s")
    changed = _changed(raw)
    told = Evidence(
        raw.state, duration_s=raw.duration_s, suspended_s=slept_s, clock_step_s=step_s, limits_changed=changed
    )
    if interruption(told) is None:
        return {}
    figures = {"suspended_s": slept_s, "clock_step_s": step_s, "duration_s": raw.duration_s}
    found = {name: value for name, value in figures.items() if value is not None}
    return found if changed is None else {**found, **limits_of(raw)}


def limits_of(raw: RawResult) -> dict[str, Json]:
    """The limits that the run lived under, for the record of an attempt for which they matter."""
    looks = _mapping(raw.evidence.get("placement"))
    return {"limits": dict(looks)} if looks else {}


def _changed(raw: RawResult) -> str | None:
    """What became of the limits that the run lived under, as the end of a sentence; None: nothing that is known."""
    looks = _mapping(raw.evidence.get("placement"))
    before = _mapping(looks.get("before"))
    for when, words in (
        ("after", "were changed during the run"),
        ("during", "were changed and changed back during it"),
    ):
        other = _mapping(looks.get(when))
        if before and other and (told := _differences(before, other)):
            return f"the limits of its control group {words} ({told})"
    return None


def _differences(before: Mapping[str, Json], after: Mapping[str, Json]) -> str:
    keys = [key for key in _LIMITS if before.get(key) != after.get(key)]
    if "cpu_quota_cores" in keys and "cpu_quota_us" in keys:
        keys.remove("cpu_quota_us")  # the same in other words
    return ", ".join(f"{_LIMITS[key]} {_shown(key, before)} -> {_shown(key, after)}" for key in keys)


def _shown(key: str, limits: Mapping[str, Json]) -> str:
    value = limits.get(key)
    if key == "memory_max_bytes" and isinstance(value, int):
        return _bytes(value)
    return "none" if value is None else str(value)


def _wrong_spec(raw: RawResult, device: Device) -> str | None:
    """Why the run was not on the device that the config describes, by the limits that it started under."""
    limits = _mapping(_mapping(raw.evidence.get("placement")).get("before"))
    if device.kind != "kubernetes" or not limits:
        return None
    from sidewinder.transports.kubernetes_limits import sentence, unlike_inside

    pod = _mapping(raw.device.get("pod"))
    where = f"device {device.id!r} (pod {pod.get('name')}, namespace {pod.get('namespace')}) when the run started"
    why = "the figures are those of its control group, read inside its container; was it resized, or are quotas off?"
    return sentence(unlike_inside(limits, device), device, where, why) or None


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
