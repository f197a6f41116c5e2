"""B13 over SSH: the clock of a device is set while a run is on it: no wait ends early or late, no time is negative, and
the run, which cannot be trusted now, is measured once more and says why. Between two runs it may be set as one likes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.helpers_clock import WrongClock
from e2e.helpers_ssh import Sshd, needs_sshd
from engine.helpers_engine import command
from netns.controller import Sweep, quicken
from netns.lab_hosts import Witness, until

pytestmark = needs_sshd
WITNESS = str(Path(__file__).resolve().parents[1] / "netns" / "witness.py")
TIMEOUT_S = 600.0  # of a point: less than every jump


class Lab:
    """One server whose clock can be set at any time, and a witness of what ran there."""

    def __init__(self, folder: Path) -> None:
        self.server = Sshd(folder / "pi5")
        self.clock = WrongClock(folder / "clock")
        self.device = replace(self.server.device(), python=str(self.clock.python))
        self.witness = Witness(folder / "witness")

    def point(self, run: str, how_long: str) -> dict[str, object]:
        argv = (sys.executable, "-S", WITNESS, str(self.witness.folder), "{run}", how_long)
        metrics = {"start_ns": r'"start_ns": (\d+)'}
        return command(*argv, device="pi5", parameters={"run": run}, metrics=metrics, extra={"timeout_s": TIMEOUT_S})


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    quicken(setter=monkeypatch.setattr)
    one = Lab(tmp_path)
    one.server.start()
    yield one
    one.server.stop()


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 3650 * 86400.0], ids=["back", "forward", "ten-years"])
def test_during_a_run(lab: Lab, tmp_path: Path, jump: float) -> None:
    one = Sweep.of(tmp_path / "runs", [lab.point("a", "hold"), lab.point("b", "0.1")], [lab.device])
    try:
        one.until(lambda: lab.witness.of("a"), "it runs")
        lab.clock.set(jump)
        seen_s = lab.witness.of("a")[0].last_s
        until(lambda: lab.witness.of("a")[0].last_s > seen_s + 1, "it runs on: time-out and lease know no wall clock")
        lab.witness.let_go()
        assert one.finish() == {"a": "ok", "b": "ok"}
    finally:
        one.end()
    assert [execution.complete for execution in lab.witness.of("a")] == [True, True], "ended by nobody, then again"
    assert [execution.complete for execution in lab.witness.of("b")] == [True]
    assert lab.witness.overlaps() == []
    first, second = one.record("a")["attempts"]
    assert "clock was set" in first["error"]
    assert second["outcome"] == "ok"
    for run in "ab":
        record = one.record(run)
        assert 0 < record["duration_s"] < TIMEOUT_S
    assert one.record("a")["metrics"]["start_ns"] == lab.witness.of("a")[1].start_ns


def test_between_runs(lab: Lab, tmp_path: Path) -> None:
    points = [lab.point("a", "0.05"), lab.point("b", "hold"), lab.point("c", "0.05")]
    one = Sweep.of(tmp_path / "runs", points[:1], [lab.device])
    assert one.finish() == {"a": "ok"}
    lab.clock.set(-7200.0)
    lab.witness.let_go()
    again = Sweep.of(tmp_path / "runs", points, [lab.device])
    try:
        again.finish()
    finally:
        again.end()
    assert set(again.outcomes().values()) == {"ok"}
    assert [execution.run for execution in lab.witness.executions] == ["a", "b", "c"]
    for run, offset_s in (("b", -7200), ("c", -7200)):
        record = again.record(run)
        assert [attempt["n"] for attempt in record["attempts"]] == [1]
        assert abs(record["clock"]["offset_s"] - offset_s) < 5
        assert 0 < record["duration_s"] < TIMEOUT_S


def test_between_the_end_of_a_run_and_its_fetching(lab: Lab, tmp_path: Path) -> None:
    """As a machine without a clock of its own does it, which hears the time of day long after it was started: to its
    agent everything that lies there is months old, and yet nobody has fetched it."""
    one = Sweep.of(tmp_path / "runs", [lab.point("a", "hold")], [lab.device])
    try:
        one.until(lambda: lab.witness.of("a"), "it runs")
        lab.server.die()
        one.until_lost()
        lab.witness.let_go()
        until(lambda: list(lab.server.state.glob("runs/*/*.1/result")), "it ends unheard")
        lab.clock.set(100 * 86400.0)
        lab.server.start()
        assert one.finish() == {"a": "ok"}
    finally:
        one.end()
    assert len(lab.witness.executions) == 1
    assert one.attempts("a") == [(1, "ok")]
