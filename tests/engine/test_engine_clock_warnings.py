"""A device whose clock is far off: told once, in the schedule and in the report; one that cannot be read says so."""

from __future__ import annotations

import pytest

from engine.helpers_engine import command, make_plan, run
from engine.helpers_scripted import scripted
from sidewinder import report
from sidewinder.files import schedule
from sidewinder.model import Device
from sidewinder.transports.messages import ClockOffset


@pytest.fixture
def machines(monkeypatch):
    return scripted(monkeypatch, "pi", "well", "dead")


def lab(root, *names, points=2):
    devices = [
        Device(name, "ssh", max_transport_failures=1, give_up_after_s=0.0, recovery_after_s=0.0) for name in names
    ]
    asked = [command("true", device=name, parameters={"i": i}) for name in names for i in range(points)]
    return make_plan(root, asked, devices=devices)


def test_it_is_told_once_and_is_in_schedule_and_report(tmp_path, machines):
    root = tmp_path / "runs"
    machines["pi"].clock = ClockOffset(-3600.0, 0.0002, 10)
    machines["dead"].down = True
    plan = lab(root, "pi", "well", "dead", points=3)
    told = run(root, plan)
    warnings = [event for event in told.events if event["kind"] == "warning" and "clock" in event["message"]]
    assert [event["device"] for event in warnings] == ["pi"]
    assert machines["pi"].asked["clock"] > 1  # it was read more often than it was told
    sentence = "the clock of pi is 3600.000 s behind ours (± 0.000200 s)"
    assert sentence in warnings[0]["message"]
    assert "NTP" in warnings[0]["message"]
    clocks = schedule.read(str(root))["clock_offsets"]
    assert (clocks["pi"]["status"], clocks["pi"]["offset_s"], clocks["pi"]["bound_s"]) == ("ok", -3600.0, 0.0002)
    assert sentence in clocks["pi"]["warning"]
    assert clocks["well"]["status"] == "ok"
    assert "warning" not in clocks["well"]
    assert clocks["dead"]["status"] == "unreachable"
    assert "no route to host" in clocks["dead"]["error"]
    report.build(str(root), plan)
    page = (root / "summary" / "report.html").read_text()
    environment = page[page.index('id="environment"') : page.index('id="order"')]
    assert sentence in environment


def test_the_schedule_has_it_at_once(tmp_path, machines):
    """The report of a sweep that takes less than the schedule's pause is made before the last writing."""
    root = tmp_path / "runs"
    machines["pi"].clock = ClockOffset(5.0, 0.0002, 10)
    seen = []
    machines["pi"].on["start"] = lambda *_: seen.append(schedule.read(str(root)))
    run(root, lab(root, "pi"))
    assert "5.000 s ahead" in seen[0]["clock_offsets"]["pi"]["warning"]
    assert "5.000 s ahead" in seen[0]["device_warnings"]["pi"][0]


def test_a_later_invocation_that_asks_another_device_keeps_what_was_read(tmp_path, machines):
    root = tmp_path / "runs"
    machines["pi"].clock = ClockOffset(5.0, 0.0002, 10)
    plan = lab(root, "pi", "well")
    run(root, plan, [r for r, p in plan.points.items() if p.device == "pi"])
    assert schedule.read(str(root))["clock_offsets"]["well"] == {"status": "unknown"}
    run(root, plan, [r for r, p in plan.points.items() if p.device == "well"])
    told = schedule.read(str(root))
    assert told["clock_offsets"]["pi"]["offset_s"] == 5.0
    assert "5.000 s ahead" in told["device_warnings"]["pi"][0]
    assert told["clock_offsets"]["well"]["status"] == "ok"
