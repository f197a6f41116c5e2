"""A stand-in: the device that ``failover_to`` names, to take over what another one cannot measure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sidewinder.model import Device, Model, Point

from .positions import Path
from .problems import Problems, did_you_mean


def check_names(devices: Mapping[str, Device], declared: Mapping[str, Any], problems: Problems) -> None:
    """``declared``: all names of the config, those of broken devices too."""
    for name, device in devices.items():
        for other in device.failover_to:
            if other == name:
                problems.add("a device cannot stand in for itself", _path(name), value=other)
            elif other not in declared:
                problems.add("no such device", _path(name), value=other, hint=did_you_mean(other, declared))
    for circle in _circles(devices):
        problems.add(
            f"devices stand in for each other in a circle: {' -> '.join((*circle, circle[0]))}",
            _path(circle[0]),
            value=circle[1],
            hint="a point moves once: let no device that stands in name the one that it stands in for",
        )


def check_models(
    points: Iterable[Point], devices: Mapping[str, Device], models: Mapping[str, Model], problems: Problems
) -> None:
    """A stand-in that lacks a model could never do the work that it is declared for."""
    used = dict.fromkeys((point.device, point.model) for point in points)
    for name, model_name in used:
        model = models.get(model_name) if model_name is not None else None
        for other in devices[name].failover_to:
            if model is not None and other in devices and model.path_on(other) is None:
                problems.add(
                    f"device {other} cannot stand in: model {model.id!r} has no path there",
                    _path(name),
                    value=other,
                    hint=f"give it models.{model.id}.paths.{other}, or take {other} out of devices.{name}.failover_to",
                )


def _path(device: str) -> Path:
    return ("devices", device, "failover_to")


def _circles(devices: Mapping[str, Device]) -> list[list[str]]:
    """Each circle of two devices or more once, from the one that is declared first."""
    found: list[list[str]] = []
    over: set[str] = set()
    for start in devices:
        _walk(start, [], devices, over, found)
    return found


def _walk(name: str, way: list[str], devices: Mapping[str, Device], over: set[str], found: list[list[str]]) -> None:
    if name in way:
        circle = way[way.index(name) :]
        if len(circle) > 1:
            found.append(circle)
        return
    if name in over or name not in devices:
        return
    for other in devices[name].failover_to:
        _walk(other, [*way, name], devices, over, found)
    over.add(name)
