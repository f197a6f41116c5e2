"""A selection: the part of a plan that this invocation is about. It never changes a run id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sidewinder.errors import ConfigError
from sidewinder.model import Plan

from .problems import did_you_mean

Names = str | Sequence[str] | None


def select(
    plan: Plan, *, device: Names = None, model: Names = None, mode: Names = None, limit: int | None = None
) -> Plan:
    """``plan`` narrowed to points of these devices, models and modes, and to the first ``limit`` of them."""
    wanted = {"device": _names(device), "model": _names(model), "mode": _names(mode)}
    if not any(wanted.values()) and limit is None:
        return plan
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError("must be a whole number of 1 or more", key="limit", value=limit)
    for key, names in wanted.items():
        known = {str(value) for point in plan.points.values() if (value := getattr(point, key)) is not None}
        if key == "device":
            known |= set(plan.lab.devices)
        for name in names:
            if name not in known:
                rule = f"no point of this plan has such a {key}"
                raise ConfigError(rule, key=key, value=name, hint=did_you_mean(name, known))
    found = [
        run_id
        for run_id, point in plan.points.items()
        if plan.is_selected(run_id) and all(not names or getattr(point, key) in names for key, names in wanted.items())
    ]
    if not found:
        asked = ", ".join(f"{key}={','.join(names)}" for key, names in wanted.items() if names)
        raise ConfigError(f"no point of this plan has all of {asked}")
    return replace(plan, selected=frozenset(found[:limit]))


def _names(names: Names) -> tuple[str, ...]:
    listed: Iterable[str] = names.split(",") if isinstance(names, str) else names or ()
    return tuple(filter(None, (name.strip() for name in listed)))
