"""B13: a device whose clock ran backwards sends a negative duration; no record, display or report shows one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from engine.helpers_engine import command, make_plan, only, record, run
from engine.helpers_scripted import scripted
from files.helpers_files import point, raw_result
from sidewinder import report
from sidewinder.engine import clock
from sidewinder.files import records
from sidewinder.model import Device, Measurement

KNOWN: dict[str, Any] = {"campaign": "c", "versions": {}, "measurement": Measurement(ok=True)}


def build(**fields: Any) -> dict[str, Any]:
    raw = fields.pop("raw", None) or raw_result(**fields.pop("result", {}))
    return records.build(point("p"), Device("pi5", "local"), raw=raw, **KNOWN, **fields)


def negative(value: Any, path: str = "") -> list[str]:
    """Every duration below zero, wherever it stands."""
    if isinstance(value, dict):
        return [found for name, item in value.items() for found in negative(item, f"{path}.{name}")]
    if isinstance(value, list):
        return [found for item in value for found in negative(item, path)]
    below = isinstance(value, int | float) and value < 0
    return [path] if below and path.endswith(("_s", "_ms", "_us", "_ns")) and "clock_step_s" not in path else []


def test_what_a_device_sends_is_clamped_and_flagged() -> None:
    evidence = {
        "usage": {"utime_s": -4.0, "stime_s": 1.0},
        "pressure": {"during": {"cpu": {"some_us": -7, "some_share": 0.1}}},
        "cgroup": {"throttled_us": -12},
        "stamps": {"suspended_s": -0.2, "clock_step_s": -3600.0, "start": {"wall_ns": 5}, "end": {"wall_ns": 3}},
    }
    made = build(result={"duration_s": -3.25, "evidence": evidence})
    assert made["duration_s"] == 0
    assert made["conditions"]["wall_s"] == 0
    assert negative(made) == []
    assert made["conditions"]["stamps"]["clock_step_s"] == -3600.0  # a difference: it says which way
    for name in ("duration_s = -3.25", "cpu_s = -3", "pressure.during.cpu.some_us = -7", "cgroup.throttled_us = -12"):
        assert any(name in warning for warning in made["warnings"]), name
    assert "cpu_over_wall" not in made["conditions"]
    json.dumps(made)


def test_what_is_right_stays_as_it_is_without_a_word() -> None:
    made = build(result={"duration_s": 3.25, "evidence": {"usage": {"utime_s": 1.0, "stime_s": 0.5}}})
    assert (made["duration_s"], made["conditions"]["cpu_s"], made["warnings"]) == (3.25, 1.5, [])


def test_an_attempt_that_ended_before_it_began_is_flagged() -> None:
    attempt = {"n": 1, "start_utc": "2026-10-25T01:00:00.000+00:00", "end_utc": "2026-10-25T00:00:09.000+00:00"}
    assert any("attempt 1 ended before it began" in warning for warning in build(attempts=[attempt])["warnings"])
    attempt["end_utc"] = attempt["start_utc"]
    assert build(attempts=[attempt])["warnings"] == []


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    return scripted(monkeypatch, "pi")["pi"]


def test_records_displays_and_report_show_none(tmp_path: Any, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device sends -2 s, and the controller's clock goes back an hour while it waits for it."""
    at_s = [datetime(2026, 10, 25, 1, 0, tzinfo=UTC).timestamp()]
    monkeypatch.setattr(clock, "time_ns", lambda: int(at_s[0] * 1e9))

    def back(*_: Any) -> None:
        at_s[0] -= 3600
        run_id, n = machine.ran[-1]
        machine.results[run_id, n] = raw_result(duration_s=-2.0)

    machine.on["wait"] = back
    root = tmp_path / "runs"
    plan = make_plan(root, [command("true", device="pi")], devices=[Device("pi", "ssh")])
    told = run(root, plan)
    written = record(root, plan, only(plan))
    assert negative(written) == []
    assert any("negative duration" in warning for warning in written["warnings"])
    assert any("ended before it began" in warning for warning in written["warnings"])
    assert [negative(event) for event in told.events if negative(event)] == []
    assert written["clock"]["bound_s"] >= 0
    summary = report.build(str(root), plan)
    assert summary.total.done == 1
    page = (root / "summary" / "report.html").read_text()
    assert "negative duration" in page
    assert 'width="-' not in page
    assert "-2" not in (root / "summary" / "points.csv").read_text().splitlines()[1].split(",")
