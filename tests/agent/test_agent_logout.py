"""What a login manager does at logout, as the agent learns it: from a stand-in ``loginctl`` and made-up control groups.

The answers are those of systemd 252; no systemd runs where these tests do.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from agent.helpers_agent import Bench, drive
from sidewinder.agent.logout import logout_facts

ME = pwd.getpwuid(os.getuid()).pw_name
SESSION = f"0::/user.slice/user-{os.getuid()}.slice/session-3.scope\n"
SCOPE = f"0::/user.slice/user-{os.getuid()}.slice/user@{os.getuid()}.service/app.slice/run-r7.scope\n"
HYBRID = "3:cpu,cpuacct:/\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n"
SERVICE = "0::/system.slice/ssh.service\n"

# With an account it tells of that, without one of the login manager itself; only what was asked for.
LOGINCTL = """#!/bin/sh
echo "$@" >> {log}
{account}
case "$*" in
  *"--property=Linger "[0-9]*) echo Linger={linger};;
  *--property=KillUserProcesses*) echo KillUserProcesses={kills}
    echo "KillExcludeUsers={spared}"
    echo "KillOnlyUsers={only}";;
esac
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root on which systemd is the first process; its tools are looked for in ``bin`` only."""
    root = tmp_path / "root"
    (root / "run/systemd/system").mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    group(root, SESSION)
    return root


def group(root: Path, text: str) -> None:
    (root / "proc/self/cgroup").write_text(text)


def loginctl(
    root: Path, *, kills: str = "no", linger: str = "no", spared: str = "", only: str = "", account: str = ""
) -> Path:
    tool = root.parent / "bin/loginctl"
    log = root.parent / "asked"
    tool.write_text(LOGINCTL.format(log=log, kills=kills, linger=linger, spared=spared, only=only, account=account))
    tool.chmod(0o755)
    return log


@pytest.mark.parametrize(
    ("cgroup", "unit"), [(SESSION, "session"), (HYBRID, "session"), (SCOPE, "manager"), (SERVICE, "system")]
)
@pytest.mark.parametrize("kills", ["yes", "no"])
@pytest.mark.parametrize("linger", ["yes", "no"])
def test_it_learns_unit_kills_and_linger(machine: Path, cgroup: str, unit: str, kills: str, linger: str) -> None:
    loginctl(machine, kills=kills, linger=linger)
    group(machine, cgroup)
    assert logout_facts(str(machine)) == {
        "user": ME,
        "unit": unit,
        "kills": kills == "yes",
        "linger": linger == "yes",
    }


def test_it_asks_the_manager_and_then_for_its_own_account(machine: Path) -> None:
    log = loginctl(machine)
    logout_facts(str(machine))
    assert log.read_text().splitlines() == [
        "show-user --property=KillUserProcesses --property=KillOnlyUsers --property=KillExcludeUsers",
        f"show-user --property=Linger {os.getuid()}",
    ]


@pytest.mark.parametrize(
    ("spared", "only", "kills"),
    [(f"root-x {ME}", "", False), ("", "somebody", False), ("", f"somebody {ME}", True), ("somebody", "", True)],
)
def test_accounts_that_are_spared_are_not_killed(machine: Path, spared: str, only: str, kills: bool) -> None:
    loginctl(machine, kills="yes", spared=spared, only=only)
    assert logout_facts(str(machine))["kills"] is kills


def test_what_cannot_be_learnt_is_absent(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loginctl(machine, kills="yes", account='echo "Failed to get user: not logged in" >&2; exit 1')
    assert logout_facts(str(machine)) == {"user": ME, "unit": "session"}
    monkeypatch.setenv("PATH", str(machine.parent / "nothing"))  # no loginctl at all
    assert logout_facts(str(machine)) == {"user": ME, "unit": "session"}


def test_nothing_is_asked_where_no_systemd_runs(machine: Path) -> None:
    log = loginctl(machine, kills="yes")
    (machine / "run/systemd/system").rmdir()
    assert logout_facts(str(machine)) == {}
    assert not log.exists()


def test_it_is_among_the_facts_of_a_device(machine: Path, tmp_path: Path) -> None:
    loginctl(machine, kills="yes", linger="no")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert client.hello is not None
        assert client.hello.facts["logout"] == {"user": ME, "unit": "session", "kills": True, "linger": False}

    drive(tmp_path / "state", body, root=str(machine))
