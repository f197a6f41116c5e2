"""Starts and results that are lost on the way, and a host that two people use at once.

| what happens | outcome |
| --- | --- |
| the start is sent into a link that has just failed | one execution, also when the old bytes arrive late |
| the start arrives, its answer does not | one execution: the device is asked |
| the run ends unheard, then the host reboots or loses its power | its result lies on the disk and is fetched |
| two controllers, each with a run folder of its own, want the same host | they take turns, nothing overlaps |
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netns.conftest import MakeSweep
from netns.controller import Sweep, witnessed
from netns.lab_hosts import LabHost, LabHosts, until
from sidewinder.transports.client import AgentClient
from sidewinder.transports.messages import Started


@pytest.mark.parametrize("fault", [LabHost.drop, LabHost.cut, LabHost.mute])
def test_a_start_of_which_nothing_is_heard(
    fault: Callable[[LabHost], None], lab: LabHosts, sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, starts = lab["h1"], []
    real = AgentClient.start

    async def start(self: AgentClient, run_id: str, n: int, *args: Any, **more: Any) -> Started:
        starts.append(n)
        if len(starts) == 2:  # the link is known to be well: `a` went over it
            fault(host)
        return await real(self, run_id, n, *args, **more)

    monkeypatch.setattr(AgentClient, "start", start)
    points = [witnessed("h1", "a", 0.05), witnessed("h1", "b"), witnessed("h1", "c", 0.05)]
    one = sweep(points, [host.device(recovery_after_s=0.5, give_up_after_s=600.0)])
    one.until(lambda: len(starts) == 2 and _tries_again(one), "its link is given up")
    assert len(host.witness.of("b")) == (1 if fault is LabHost.mute else 0)
    host.heal()
    one.until_running(host, "b")
    host.witness.let_go()
    assert one.finish() == {"a": "ok", "b": "ok", "c": "ok"}
    assert sorted(execution.run for execution in host.witness.executions) == ["a", "b", "c"]
    assert all(execution.complete for execution in host.witness.executions)
    assert host.witness.overlaps() == []
    assert one.record("b")["metrics"]["start_ns"] == host.witness.of("b")[0].start_ns
    until(lambda: host.processes() == [], "no late start comes through")


def _tries_again(one: Sweep) -> bool:
    return any(event["kind"] in ("retry", "warning", "down") for event in one.told.events)


@pytest.mark.parametrize("how", ["reboot", "power-cut"])
def test_a_result_that_was_not_fetched_outlives_its_host(how: str, lab: LabHosts, sweep: MakeSweep) -> None:
    host = lab["h1"]
    one = sweep([witnessed("h1", "a")], [host.device()])
    one.until_running(host, "a")
    host.drop()
    one.until_lost()
    host.witness.let_go()
    until(lambda: not host.processes() and not host.runners(), "it ends unheard")
    if how == "reboot":
        host.reboot()
    else:
        host.power_off()
        host.power_on()
    assert one.finish() == {"a": "ok"}
    (execution,) = host.witness.executions
    assert execution.complete
    assert one.attempts("a") == [(1, "ok")]
    assert one.record("a")["metrics"]["start_ns"] == execution.start_ns


def test_two_controllers_take_turns(lab: LabHosts, tmp_path: Path) -> None:
    host, sweeps = lab["h1"], []
    try:
        for who in ("ann", "bob"):
            points = [witnessed("h1", f"{who}0"), witnessed("h1", f"{who}1", 0.1)]
            sweeps.append(Sweep.of(tmp_path / who, points, [host.device()]))
            sweeps[0].until_running(host, "ann0")
        ann, bob = sweeps
        bob.until(lambda: "busy" in bob.told.kinds(), "the second one is told to wait")
        assert [execution.run for execution in host.witness.executions] == ["ann0"]
        host.witness.let_go()
        assert set(ann.finish().values()) == set(bob.finish().values()) == {"ok"}
    finally:
        for one in sweeps:
            one.end()
    assert sorted(execution.run for execution in host.witness.executions) == ["ann0", "ann1", "bob0", "bob1"]
    assert host.witness.overlaps() == []
