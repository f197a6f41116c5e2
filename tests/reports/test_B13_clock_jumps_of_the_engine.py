"""B13: a wall clock that jumps, or a night with a time change, fires nothing and makes no time run backwards."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.helpers_engine import command, make_plan, only, record, run
from sidewinder import engine
from sidewinder.engine import clock
from sidewinder.model import Device

UTC_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00")


@pytest.fixture
def local(tmp_path):
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})


def jumping(monkeypatch, offsets_s):
    """Each look at the wall clock of this process sees another jump."""
    real, calls = time.time_ns, iter(range(10**9))
    monkeypatch.setattr(clock, "time_ns", lambda: real() + offsets_s[next(calls) % len(offsets_s)] * 10**9)


def test_what_is_written_down_follows_the_wall_clock_also_backwards(monkeypatch):
    at_s = datetime(2026, 10, 25, 0, 59, 59, tzinfo=UTC).timestamp()
    expected = []
    for offset_s in (0, 1, -3600, 600, 0):
        monkeypatch.setattr(clock, "time_ns", lambda offset_s=offset_s: int((at_s + offset_s) * 10**9) + 5_999_999)
        expected.append(datetime.fromtimestamp(at_s + offset_s, UTC).isoformat(timespec="seconds")[:19] + ".005+00:00")
        assert clock.utc_now() == expected[-1]
    assert len(set(expected)) == 4


@pytest.mark.parametrize("offsets_s", [[0, -3600, 600], [0, 86400 * 365]])
def test_jumps_end_no_run_and_stop_no_timer(tmp_path, local, monkeypatch, offsets_s):
    # the point has a time-out of 20 s and needs 0.2 s: a wait on the wall clock would end it, or wait an hour
    jumping(monkeypatch, offsets_s)
    root = tmp_path / "runs"
    point = command(sys.executable, "-c", "import time; time.sleep(0.2)", extra={"timeout_s": 20})
    plan = make_plan(root, [point, {**point, "parameters": {"i": 1}}], devices=[local])
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    for run_id in plan.points:
        assert 0.15 < record(root, plan, run_id)["duration_s"] < 20


def test_times_are_utc_in_a_zone_that_changes_its_clock(tmp_path, local, monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        root = tmp_path / "runs"
        plan = make_plan(root, [command("true")], devices=[local])
        told = run(root, plan)
    finally:
        monkeypatch.undo()
        time.tzset()
    written = record(root, plan, only(plan))
    stamps = [written["timestamp_utc"], *(written["attempts"][0][key] for key in ("start_utc", "end_utc"))]
    stamps += [event["at_utc"] for event in told.events]
    assert [stamp for stamp in stamps if not UTC_STAMP.fullmatch(stamp)] == []
    assert abs(datetime.fromisoformat(written["timestamp_utc"]).timestamp() - time.time()) < 3600


def test_the_engine_waits_on_the_loop_only():
    """No wait of the engine may be computed from the wall clock: it is read in one module, to be written down."""
    folder = Path(engine.__file__).parent
    guilty = [
        path.name
        for path in folder.glob("*.py")
        if path.name != "clock.py" and re.search(r"time\.time\(|datetime|time_ns\(", path.read_text())
    ]
    assert guilty == []
