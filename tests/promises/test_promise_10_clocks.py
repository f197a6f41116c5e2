"""Promise 10: wall-clock jumps fire nothing; every time on disk is UTC with offset, every wait is monotonic.

Shown with an engine whose wall clock jumps by a year at every look, while a device's cooldown of an hour runs and does
not end, and another one's of a moment does.
"""

from __future__ import annotations

import itertools
import re
import time
from datetime import datetime
from pathlib import Path

import pytest

from engine.helpers_engine import Told, make_plan
from engine.helpers_scripted import scripted
from promises.helpers_promises import lines, records
from sidewinder.engine import Engine, clock
from sidewinder.model import Device
from sidewinder.testing import Simulation

UTC_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
YEAR_S = 365 * 86_400


def test_a_clock_that_jumps_ends_no_cooldown_and_lengthens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, jumps = time.time_ns, itertools.cycle((0, YEAR_S, -3600, 2 * YEAR_S))
    monkeypatch.setattr(clock, "time_ns", lambda: real() + next(jumps) * 10**9)
    machines = scripted(monkeypatch, "down", "well", "blip")
    machines["down"].down = machines["blip"].down = True
    hour = Device("down", "ssh", max_transport_failures=1, recovery_after_s=3600.0, give_up_after_s=None)
    moment = Device("blip", "ssh", max_transport_failures=1, recovery_after_s=0.05, give_up_after_s=None)
    points = [
        {"backend": "command", "command": ("true",), "device": name, "parameters": {"i": i}}
        for name in machines
        for i in range(20)
    ]
    root = tmp_path / "runs"
    plan = make_plan(root, points, devices=[hour, Device("well", "ssh"), moment])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda told: told.kinds().count("down") >= 2, "two are down")
    asked = machines["down"].asked.total()
    machines["blip"].down = False
    told.until(lambda told: len(told.done) >= 40, "the others have measured")
    assert machines["down"].asked.total() == asked, "its hour is not over"
    engine.cancel(drain=True)
    told.wait(60)
    assert engine.shutdown(20)
    stamps = list(_stamps([*records(root).values(), *lines(root), *lines(root, "journal.jsonl"), *told.events]))
    assert len(stamps) > 60
    assert [stamp for stamp in stamps if not UTC_STAMP.fullmatch(stamp)] == []
    years = {datetime.fromisoformat(stamp).year for stamp in stamps}
    assert len(years) >= 2, "the jumps were seen by what is written down, and by nothing else"


def _stamps(value: object, key: str = "") -> list[str]:
    if isinstance(value, dict):
        return [stamp for name, inner in value.items() for stamp in _stamps(inner, str(name))]
    if isinstance(value, list):
        return [stamp for inner in value for stamp in _stamps(inner, key)]
    return [value] if isinstance(value, str) and (key.endswith("utc") or key == "utc") else []


def test_campaigns_with_and_without_jumps_are_the_same_to_the_last_event() -> None:
    for seed in range(10):
        print(f"SEED={seed}")
        assert Simulation(seed).digest() == Simulation(seed, jumps=False).digest()
