"""A scope: the agent's front, and so its runs, started as a unit of the account's own systemd manager.

Where the login manager kills what is left at logout (``KillUserProcesses=yes``), a detached process alone does not
survive a lost link; in a scope of a manager that lingers it does.
"""

from __future__ import annotations

from typing import Final

from sidewinder.model import Device

PROGRAM: Final = "systemd-run"


def wrapper(device: Device) -> tuple[str, ...]:
    """What stands before the interpreter on the command line: nothing, unless the lab asks for a scope."""
    return (PROGRAM, "--user", "--scope", "-q", "--") if device.settings.get("scope") == "systemd" else ()


def refusal(device: Device) -> str:
    """What to do about a front that did not come to life in its scope."""
    return (
        f"It was to start in a scope of systemd (devices.{device.id}.scope): {PROGRAM} or the interpreter is missing, "
        "or the account has no manager (`loginctl enable-linger` gives it one that stays). `scope: never` does without"
    )
