"""A logout warning: that a device would end our runs with the last session of the account, and what to do about it.

Measured on systemd 252 with Debian's defaults; the table is in docs/ssh.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sidewinder.model import Device


def warning(device: Device, facts: Mapping[str, Any]) -> str | None:
    """None: a run survives there, or that could not be learnt, or the lab does not want to hear of it."""
    said = facts.get("logout")
    scope = device.settings.get("scope", "auto")
    if not isinstance(said, Mapping) or scope == "never" or device.kind != "ssh":
        return None
    linger, user = said.get("linger"), said.get("user", "$USER")
    enable = f"`loginctl enable-linger {user}`"
    if said.get("unit") == "session" and said.get("kills"):
        first = "" if linger else f"run {enable} there, and "
        return (
            f"{device.id} kills what is left of an account at its last logout (KillUserProcesses=yes in logind.conf): "
            f"a run there does not survive a lost link. To keep it, {first}set devices.{device.id}.scope: systemd"
        )
    if said.get("unit") == "manager" and linger is False:
        return (
            f"{device.id} ends the scopes of an account some seconds after its last logout: "
            f"a run there does not survive a lost link. To keep it, run {enable} there"
        )
    return None
