"""The interpreter of a device that a driver script is sent to: the declared one, else the one that runs the agent."""

from __future__ import annotations

from collections.abc import Mapping

from sidewinder.errors import ConfigError, DeviceFault
from sidewinder.model import Json

from .base import DeviceView

FALLBACK = "python3"


async def interpreter_of(view: DeviceView, settings: Mapping[str, Json], *, key: str) -> str:
    """Name or path to start it by. A declared path is looked for (``~`` is the device's), a name is left to PATH."""
    declared = settings.get("python")
    if declared is None:
        told = view.facts.get("python_executable")
        return told if isinstance(told, str) and told else FALLBACK
    if not isinstance(declared, str) or not declared:
        raise ConfigError("must be the path or name of a Python interpreter", key=key, value=declared)
    if "/" not in declared:
        return declared
    found = await view.first_existing([declared])
    if found is None:
        raise DeviceFault(f"{view.device.id}: {key} names {declared}, which is not there")
    return found
