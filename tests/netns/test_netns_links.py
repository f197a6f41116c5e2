"""A link that fails during a run, on hosts with a network of their own.

What is proven by the hosts' witnesses: how often each point was executed, and that no two executions overlapped.

| what happens during the run | outcome |
| --- | --- |
| cable out, black hole, RST, sshd session, all sshd or front killed, sshd frozen | the same execution; result fetched |
| the same, and the run ends before the link is back | result fetched, no second execution |
| one after the other, in one run | the same execution |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from netns.conftest import MakeSweep
from netns.controller import witnessed
from netns.lab_hosts import LabHost, LabHosts, until

Fault = Callable[[LabHost], object]


def nothing(host: LabHost) -> None:
    """It mends by itself."""


FAULTS: dict[str, tuple[Fault, Fault]] = {
    "cable": (LabHost.cut, LabHost.heal),
    "black-hole": (LabHost.drop, LabHost.heal),
    "reset": (LabHost.reset, LabHost.heal),
    "front": (LabHost.kill_front, nothing),
    "sessions": (LabHost.kill_sessions, nothing),
    "sshd": (LabHost.kill_sshd, LabHost.start_sshd),
    "frozen": (LabHost.freeze_sshd, LabHost.thaw_sshd),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_execution_goes_on(fault: str, lab: LabHosts, sweep: MakeSweep) -> None:
    host, (harm, mend) = lab["h1"], FAULTS[fault]
    one = sweep([witnessed("h1", "a")], [host.device()])
    one.until_running(host, "a")
    assert harm(host) != 0, "there was nothing to be harmed"
    one.until_lost()
    assert host.processes(), "it runs on alone"
    mend(host)
    one.until(lambda: "reconnected" in one.events(), "the link is back")
    host.witness.let_go()
    assert one.finish() == {"a": "ok"}
    (execution,) = host.witness.executions
    assert one.record("a")["metrics"]["start_ns"] == execution.start_ns
    assert one.attempts("a") == [(1, "ok")]
    assert any("the link was lost" in warning for warning in one.record("a")["warnings"])
    until(lambda: host.processes() == [], "nothing is left on the host")


@pytest.mark.parametrize("fault", ["cable", "black-hole", "sshd"])
def test_a_run_that_ends_while_the_link_is_down_is_fetched(fault: str, lab: LabHosts, sweep: MakeSweep) -> None:
    host, (harm, mend) = lab["h1"], FAULTS[fault]
    one = sweep([witnessed("h1", "a"), witnessed("h1", "b", 0.1)], [host.device()])
    one.until_running(host, "a")
    harm(host)
    one.until_lost()
    host.witness.let_go()
    until(lambda: host.processes() == [], "it ends while nobody can hear it")
    mend(host)
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [execution.run for execution in host.witness.executions] == ["a", "b"]
    assert one.record("a")["metrics"]["start_ns"] == host.witness.of("a")[0].start_ns
    assert host.witness.overlaps() == []


def test_a_link_that_fails_again_and_again_costs_no_execution(lab: LabHosts, sweep: MakeSweep) -> None:
    host = lab["h1"]
    one = sweep([witnessed("h1", "a")], [host.device()])
    one.until_running(host, "a")
    for times, fault in enumerate(("black-hole", "reset", "cable", "sessions"), 1):
        harm, mend = FAULTS[fault]
        harm(host)
        one.until(lambda times=times: one.events().count("link_lost") >= times, "the link is lost")
        mend(host)
        host.heal()
        one.until(lambda times=times: one.events().count("reconnected") >= times, "the link is back")
    host.witness.let_go()
    assert one.finish() == {"a": "ok"}
    assert len(host.witness.executions) == 1
    assert one.attempts("a") == [(1, "ok")]
