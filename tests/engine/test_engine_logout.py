"""A device that ends our runs at logout is told of once, with the command that helps; others are not.

The rows are those measured on systemd 252 with Debian's defaults (docs/ssh.md).
"""

from __future__ import annotations

import pytest

from engine.helpers_engine import command, make_plan, run
from engine.helpers_scripted import scripted
from sidewinder import report
from sidewinder.engine import logout
from sidewinder.files import schedule
from sidewinder.model import Device

BOTH = "run `loginctl enable-linger bench` there, and set devices.pi5.scope: systemd"
SCOPE = "a lost link. To keep it, set devices.pi5.scope: systemd"
LINGER = "To keep it, run `loginctl enable-linger bench` there"


def warning(unit, kills, linger, *, scope="auto", kind="ssh"):
    facts = {"logout": {"user": "bench", "unit": unit, "kills": kills, "linger": linger}}
    return logout.warning(Device("pi5", kind, settings={"scope": scope}), facts)


@pytest.mark.parametrize(
    ("kills", "linger", "unit", "survives", "advice"),
    [
        (False, False, "session", True, None),
        (False, False, "manager", False, LINGER),
        (False, True, "session", True, None),
        (False, True, "manager", True, None),
        (True, False, "session", False, BOTH),
        (True, True, "session", False, SCOPE),
        (True, False, "manager", False, LINGER),
        (True, True, "manager", True, None),
        (True, False, "system", True, None),  # an sshd without PAM: no session, so no logout
    ],
)
def test_it_warns_exactly_where_a_run_does_not_survive(kills, linger, unit, survives, advice):
    text = warning(unit, kills, linger)
    assert (text is None) is survives
    if text is not None:
        assert text.startswith("pi5 ")
        assert advice in text


def test_who_said_never_and_who_could_not_be_asked_hears_nothing():
    assert warning("session", True, False, scope="never") is None
    assert logout.warning(Device("pi5", "ssh"), {}) is None
    assert logout.warning(Device("pi5", "ssh"), {"logout": {"user": "bench", "unit": "session"}}) is None
    assert logout.warning(Device("pi5", "ssh"), {"logout": {"user": "bench", "unit": "manager"}}) is None
    assert warning("session", True, False, kind="local") is None


def test_it_is_told_once_and_is_in_schedule_and_report(tmp_path, monkeypatch):
    machine = scripted(monkeypatch, "pi5")["pi5"]
    machine.facts = {"logout": {"user": "bench", "unit": "session", "kills": True, "linger": False}}
    machine.lose += ["wait"]  # and so a second connection
    root = tmp_path / "runs"
    points = [command("true", device="pi5", parameters={"i": i}) for i in range(3)]
    plan = make_plan(root, points, devices=[Device("pi5", "ssh")])
    told = run(root, plan)
    assert machine.asked["connect"] > 1
    warnings = [event for event in told.events if event["kind"] == "warning" and "logout" in event["message"]]
    assert [event["device"] for event in warnings] == ["pi5"]
    assert BOTH in warnings[0]["message"]
    assert BOTH in schedule.read(str(root))["device_warnings"]["pi5"][0]
    report.build(str(root), plan)
    assert "loginctl enable-linger bench" in (root / "summary" / "report.html").read_text()
