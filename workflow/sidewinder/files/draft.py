"""A draft: the dict that becomes a record, put together from what was planned, what ran and what was read out of it.

Every key of ``docs/records.md`` is filled here and nowhere else. Absent means not known: ``None``, NaN and infinities
are dropped, zeros are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final

from sidewinder.errors import InternalError
from sidewinder.model import (
    EMPTY,
    KNOB_AXES,
    WORKLOAD_AXES,
    Device,
    Failure,
    FailureClass,
    Found,
    Json,
    Measurement,
    Point,
    RawResult,
)

SCHEMA_VERSION: Final = 1

# Fields of a point that say what was computed (M-44) and how (M-45); the others are identity, place or policy.
_WORKLOAD_FIELDS: Final = ("model", "model_path", "model_sha256", *WORKLOAD_AXES)
_KNOB_FIELDS: Final = (*KNOB_AXES, "mode", "priority", "sample_hz")

_workload_of: Final = attrgetter(*_WORKLOAD_FIELDS)
_knobs_of: Final = attrgetter(*_KNOB_FIELDS)

# What the agent saw around the run, taken over as it is (docs/agent.md says what lies in each).
_CONDITIONS: Final = (
    "load",
    "pressure",
    "cgroup",
    "oom_source",
    "vmstat_oom_kills",
    "leftover_killed",
    "prepare",
    "idle",
    "stamps",
)

_PLAIN: Final = frozenset({str, int, bool, type(None)})


def tidy(value: Json) -> Json:
    """``value`` as plain JSON: no ``None`` and no NaN inside mappings, tuples as lists, numpy scalars as numbers.

    Inside lists a missing element stays ``null``: positions mean something there.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if kind is dict or (kind is not list and kind is not tuple and isinstance(value, Mapping)):
        return {  # scalars are most of a record: they are kept without a call
            key if type(key) is str else str(key): kept
            for key, item in value.items()
            if (kept := item if type(item) in _PLAIN else tidy(item)) is not None
        }
    if kind is list or kind is tuple:
        return [item if type(item) in _PLAIN else tidy(item) for item in value]
    if isinstance(value, str):  # an enum of texts
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return tidy(float(value))
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes):
        items = value if isinstance(value, Sequence) else sorted(value, key=repr)
        return [item if type(item) in _PLAIN else tidy(item) for item in items]
    item = getattr(value, "item", None)  # numpy and pandas scalars of a workload plug-in
    return tidy(item()) if callable(item) else str(value)


def build(
    point: Point,
    device: Device,
    *,
    campaign: str,
    versions: Mapping[str, str],
    identity: Mapping[str, Json] = EMPTY,
    order: Mapping[str, Json] = EMPTY,
    raw: RawResult | None = None,
    stored: Mapping[str, Json] = EMPTY,
    measurement: Measurement | None = None,
    failure: Failure | None = None,
    found: Found | None = None,
    attempts: Sequence[Mapping[str, Json]] = (),
    clock: Mapping[str, Json] | None = None,
    warnings: Iterable[str] = (),
    tags: Iterable[str] = (),
    timestamp_utc: str | None = None,
    moved_to: str | None = None,
    staged: Sequence[Mapping[str, Json]] = (),
) -> dict[str, Any]:
    """The record of one point. ``stored`` is what ``raw.store`` returned; ``timestamp_utc`` stands in where the device
    gave no stamp (a hole, a point that never reached its device)."""
    if failure is None and measurement is None:
        raise InternalError(f"{point.run_id}: a record needs a measurement or a failure")
    if failure is None and measurement is not None and not measurement.ok:
        failure = Failure(measurement.failure_class, measurement.message or "the output breaks the workload's rules")
    notes = list(warnings)
    duration_s = _not_below_zero("duration_s", raw.duration_s, notes) if raw is not None else None
    evidence = raw.evidence if raw is not None else EMPTY
    usage = _mapping(evidence.get("usage"))
    metrics = _metrics(measurement.metrics if measurement else EMPTY, notes)
    peak_rss = usage.get("max_rss_bytes")
    if peak_rss:  # zero is no memory use, it is a kernel that did not say
        metrics.setdefault("peak_rss_bytes", peak_rss)
    if measurement is not None:
        notes += measurement.warnings
    if len(attempts) > 1 and not (failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED):
        notes.append(_repeats(attempts))
    stamps = _mapping(evidence.get("stamps"))
    conditions = _forwards(_conditions(raw, usage, duration_s), notes) if raw is not None else None
    notes += _backwards(attempts)
    record = {
        "schema_version": SCHEMA_VERSION,
        "run_id": point.run_id,
        "experiment": point.experiment,
        "campaign": campaign,
        "lab_version": versions.get("sidewinder"),
        "status": "failed" if failure else "ok",
        "error": failure.message if failure else None,
        "warnings": list(dict.fromkeys(notes)),
        "tags": list(dict.fromkeys((*point.tags, *tags))),
        "timestamp_utc": _device_end(stamps) or timestamp_utc,
        "duration_s": duration_s,
        "identity": identity,
        "device": _device(device, raw),
        "backend": _backend(point, found, measurement),
        "workload": _workload(point, measurement, staged),
        "knobs": _knobs(point),
        "metrics": metrics,
        "samples": measurement.samples if measurement else None,
        "telemetry": evidence.get("telemetry"),
        "conditions": conditions,
        "raw": _raw(raw, stored) if raw is not None else None,
        "failure": {"class": failure.failure_class.value, "message": failure.message, "evidence": failure.evidence}
        if failure
        else None,
        "attempts": list(attempts),
        "order": order,
        "clock": clock,
        "versions": versions,
        "moved_to": moved_to,
    }
    tidied: dict[str, Any] = tidy(record)
    for key in ("samples", "telemetry", "conditions", "clock"):  # an empty one says no more than an absent one
        if not tidied.get(key):
            tidied.pop(key, None)
    return tidied


def hole(
    point: Point,
    device: Device,
    *,
    reason: str,
    campaign: str,
    versions: Mapping[str, str],
    message: str | None = None,
    evidence: Mapping[str, Json] = EMPTY,
    **known: Any,
) -> dict[str, Any]:
    """The record of a point that was never measured, with M-117's sentences. ``reason``: the last thing seen of the
    device. ``message``: the whole sentence, from whoever knows that the device was not taken out of service. ``known``:
    what ``build`` takes besides (identity, order, attempts, timestamp_utc, moved_to, ...)."""
    message = message or f"not attempted: {device.id} was taken out of service; last reason: {reason}; re-run to retry"
    return build(
        point,
        device,
        campaign=campaign,
        versions=versions,
        failure=Failure(FailureClass.NOT_ATTEMPTED, message, {"reason": reason, **evidence}),
        warnings=(*known.pop("warnings", ()), "this point was never measured: it is a hole, not a result"),
        **known,
    )


def _device_end(stamps: Mapping[str, Json]) -> str | None:
    """When the run ended by the device's own clock; ``clock`` in the record says how far that clock is off."""
    wall_ns = _mapping(stamps.get("end")).get("wall_ns")
    if not isinstance(wall_ns, int):
        return None
    return datetime.fromtimestamp(wall_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else EMPTY


_DURATIONS: Final = ("_s", "_ms", "_us", "_ns")
_SIGNED: Final = frozenset({"clock_step_s"})  # a difference, not a duration


def _not_below_zero(name: str, value: Json, notes: list[str]) -> Json:
    """No duration is negative (B13). A device that sends one has a clock or a counter that ran backwards."""
    if isinstance(value, int | float) and value < 0:
        notes.append(f"the device sent a negative duration, {name} = {value:.9g}: 0 stands for it, it means nothing")
        return 0.0
    return value


def _forwards(values: Mapping[str, Json], notes: list[str], above: str = "") -> dict[str, Json]:
    """The same with every duration in it not below zero."""
    found: dict[str, Json] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found[name] = _forwards(value, notes, f"{above}{name}.")
        elif name.endswith(_DURATIONS) and name not in _SIGNED:
            found[name] = _not_below_zero(above + name, value, notes)
        else:
            found[name] = value
    return found


def _backwards(attempts: Sequence[Mapping[str, Json]]) -> list[str]:
    """Attempts that ended before they began, by the controller's wall clock: both are UTC of one form."""
    return [
        f"attempt {a.get('n')} ended before it began by the controller's clock, which was set meanwhile; "
        "how long it took is duration_s, by the device's monotonic clock"
        for a in attempts
        if a.get("start_utc") and a.get("end_utc") and a["end_utc"] < a["start_utc"]
    ]


def _metrics(metrics: Mapping[str, Json], notes: list[str]) -> dict[str, Json]:
    """Only finite numbers: a NaN in a mean is a lie further down, so what is dropped is said in the warnings."""
    kept: dict[str, Json] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping) and name == "extra":
            if extra := _metrics(value, notes):
                kept[name] = extra
            continue
        number = tidy(value)
        if isinstance(number, int | float) and not isinstance(number, bool):
            kept[name] = number
        elif value is not None:
            notes.append(f"metric {name} is not a finite number ({value!r:.60}) and was dropped")
    return kept


def _repeats(attempts: Sequence[Mapping[str, Json]]) -> str:
    *earlier, last = attempts
    because = "; ".join(
        f"attempt {a.get('n')} {a.get('class') or a.get('outcome') or 'ended'}: {a.get('error') or 'no reason given'}"[
            :300
        ]
        for a in earlier
    )
    return f"produced on attempt {last.get('n')} of {len(attempts)} made ({because})"


def _device(device: Device, raw: RawResult | None) -> dict[str, Json]:
    """M-41 and M-42. Facts come from the device itself; from the config only what is declared and never probed."""
    placement = _placement(raw) if raw is not None else {}
    return {
        **(raw.device if raw is not None else EMPTY),
        "device_id": device.id,
        "kind": device.kind,
        **({"boot_id": raw.boot_id} if raw is not None and raw.boot_id else {}),
        **({"placement": placement} if placement else {}),
        "dram_peak_GBs": device.dram_peak_GBs,
        "dram_measured_GBs": device.dram_measured_GBs,
        **({"accelerator": device.accelerator} if device.accelerator else {}),
    }


def _placement(raw: RawResult) -> dict[str, Json]:
    """M-42: the limits that the run lived under, as read from inside. No quota is an absent one, never a zero."""
    placement = dict(_mapping(raw.device.get("placement")))
    looks = _mapping(raw.evidence.get("placement"))
    if limits := _mapping(looks.get("before")):
        # of this run: what held when the device was met may be gone, and a limit that is gone leaves nothing to replace
        placement.pop("cpu_quota_cores", None)
        placement["cgroup"] = limits
        if (quota := limits.get("cpu_quota_cores")) is not None:
            placement["cpu_quota_cores"] = quota
    changed = looks.get("after") or looks.get("during")
    return {**placement, "changed_to": changed} if changed else placement


def _backend(point: Point, found: Found | None, measurement: Measurement | None) -> dict[str, Json]:
    """M-43. What the run itself said about its engine wins over what discovery found."""
    return {
        "name": point.backend,
        **({"version": found.version, "binary": found.binary, **found.details} if found else {}),
        **({key: v for key, v in measurement.backend.items() if v is not None} if measurement else {}),
    }


def _workload(point: Point, measurement: Measurement | None, staged: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    return {
        **dict(zip(_WORKLOAD_FIELDS, _workload_of(point), strict=True)),
        "parameters": point.parameters or None,
        "command": point.command or None,
        "staged": staged or None,
        **({key: v for key, v in measurement.workload.items() if v is not None} if measurement else {}),
    }


def _knobs(point: Point) -> dict[str, Json]:
    return {
        **dict(zip(_KNOB_FIELDS, _knobs_of(point), strict=True)),
        "sample_power": point.sample_power or None,
        "prepare": point.prepare or None,
        "extra": point.extra or None,
    }


def _conditions(raw: RawResult, usage: Mapping[str, Json], wall_s: float | None) -> dict[str, Json]:
    """Under what circumstances it ran: a contended run looks like a slow one everywhere but here."""
    evidence = raw.evidence
    user_s, system_s = usage.get("utime_s"), usage.get("stime_s")
    cpu_s = round(user_s + system_s, 6) if user_s is not None and system_s is not None else None
    return {
        "cpu_s": cpu_s,
        "wall_s": wall_s,
        "cpu_over_wall": round(cpu_s / wall_s, 6) if cpu_s is not None and wall_s else None,
        "involuntary_switches": usage.get("involuntary_switches"),
        "voluntary_switches": usage.get("voluntary_switches"),
        "major_faults": usage.get("major_faults"),
        "oom_kills": raw.oom_kills,
        **{name: evidence.get(name) for name in _CONDITIONS},
    }


def _raw(raw: RawResult, stored: Mapping[str, Json]) -> dict[str, Json]:
    memory = _mapping(raw.evidence.get("memory"))
    return {
        **stored,
        "stdout_bytes": raw.stdout.total_bytes,
        "stderr_bytes": raw.stderr.total_bytes,
        "state": raw.state,
        "returncode": raw.returncode,
        "memory_before": memory.get("before"),
        "memory_after": memory.get("after"),
    }
