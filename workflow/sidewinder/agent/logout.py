"""A logout: what systemd's login manager does to our processes when the last session of our account ends.

A run must outlive its link, and over SSH a lost link is a logout. Nothing is asked where no systemd runs.
"""

import os

from .processes import command_output
from .sysfiles import read_text, rooted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def logout_facts(root: str = "/") -> "dict[str, Any]":
    """``unit``: ``session`` (ends with the login), ``manager`` (a scope of the account's own manager), ``system`` (a
    service: no logout concerns it). ``kills``: the login manager kills what is left in a session. ``linger``: the
    account's manager outlives the last session. What could not be learnt is absent; empty: no systemd is here."""
    if not os.path.isdir(rooted(root, "/run/systemd/system")):
        return {}
    found = {"user": _account(), "unit": _unit(root)}  # type: dict[str, Any]
    said = _properties(["KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers"], [])
    if "KillUserProcesses" in said:
        only, spared = said.get("KillOnlyUsers", "").split(), said.get("KillExcludeUsers", "").split()
        concerned = found["user"] not in spared and (not only or found["user"] in only)
        found["kills"] = said["KillUserProcesses"] == "yes" and concerned
    linger = _properties(["Linger"], [str(os.getuid())]).get("Linger")
    if linger in ("yes", "no"):
        found["linger"] = linger == "yes"
    return found


def _account() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _unit(root: str) -> str:
    """By the path of our control group: .../user-1000.slice/session-3.scope or .../user@1000.service/.../x.scope."""
    for line in (read_text(rooted(root, "/proc/self/cgroup")) or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[1] in ("", "name=systemd"):
            if "/user@" in parts[2]:
                return "manager"
            if "/session-" in parts[2]:
                return "session"
    return "system"


def _properties(names: "list[str]", of: "list[str]") -> "dict[str, str]":
    """``loginctl show-user``: of an account, or without one of the login manager itself."""
    text = command_output(["loginctl", "show-user"] + ["--property=" + name for name in names] + of)
    pairs = (line.partition("=") for line in (text or "").splitlines())
    return {name: value.strip() for name, separator, value in pairs if separator}
