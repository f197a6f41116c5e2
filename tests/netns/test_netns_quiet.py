"""Hosts that cannot be reached for long, and runs that lose their runner: quiet first, then measured again.

| what happens | outcome |
| --- | --- |
| cable out or black hole for longer than the lease | the device is quiet by itself, then attempt 2 |
| cable out before the sweep begins | that device waits, the others are measured; then it is |
| runner killed, or every process of the host | the workload dies with it; attempt 2 after the proof |
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from netns.conftest import MakeSweep
from netns.controller import POLICY, quicken, witnessed
from netns.lab_hosts import LabHost, LabHosts, until
from sidewinder.model import RetryPolicy

LEASE_S = 5.0
PATIENT = replace(POLICY, retry=RetryPolicy(max_attempts=20, backoff_s=0.1, max_backoff_s=0.5))


def _lived_s(host: LabHost) -> float:
    first = host.witness.executions[0]
    return first.last_s - first.start_s


@pytest.mark.parametrize(("fault", "lived_s"), [("cut", LEASE_S + 0.5), ("drop", 0.0)])
def test_a_device_that_is_cut_off_for_longer_than_its_lease_falls_quiet_by_itself(
    fault: str, lived_s: float, lab: LabHosts, sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(lease_s=LEASE_S, setter=monkeypatch.setattr)
    host = lab["h1"]
    one = sweep([witnessed("h1", "a")], [host.device(recovery_after_s=1.0, give_up_after_s=600.0)], PATIENT)
    one.until_running(host, "a")
    one.until(lambda: _lived_s(host) >= lived_s, "heartbeats renew the lease")
    getattr(host, fault)()
    until(lambda: host.processes() == [] and host.runners() == [], "the device stops the run by itself")
    (first,) = host.witness.executions
    assert not first.complete
    host.witness.let_go()
    host.heal()
    assert one.finish() == {"a": "ok"}
    first, *others = host.witness.executions
    assert [execution.complete for execution in others] == [True]
    assert host.witness.overlaps() == []
    assert [outcome for _, outcome in one.attempts("a")] == ["lost", "ok"]
    assert one.record("a")["metrics"]["start_ns"] == others[0].start_ns


def test_a_cable_that_is_out_at_first_delays_the_sweep_of_that_device_only(lab: LabHosts, sweep: MakeSweep) -> None:
    lab["h1"].cut()
    devices = [lab["h1"].device(recovery_after_s=0.5, give_up_after_s=600.0), lab["h2"].device()]
    one = sweep([witnessed("h1", "a", 0.1), witnessed("h2", "b", 0.1)], devices, PATIENT)
    one.until(lambda: one.outcomes().get("b") == "ok", "the other one is measured")
    one.until(lambda: "down" in one.told.kinds(), "it is known to be down")
    assert "a" not in one.outcomes()
    lab["h1"].heal()
    assert one.finish() == {"a": "ok", "b": "ok"}
    assert [len(host.witness.executions) for host in lab] == [1, 1, 0]


@pytest.mark.parametrize("killed", ["runner", "everything"])
def test_a_run_that_loses_its_runner_is_measured_again_once_it_is_known_to_be_dead(
    killed: str, lab: LabHosts, sweep: MakeSweep
) -> None:
    host = lab["h1"]
    one = sweep([witnessed("h1", "a")], [host.device()])
    one.until_running(host, "a")
    if killed == "runner":
        assert host.kill_runner() == 1
    else:
        host.kill_all()
        host.restart_sshd()
    one.until_running(host, "a", times=2)
    host.witness.let_go()
    assert one.finish() == {"a": "ok"}
    first, second = host.witness.executions
    assert (first.complete, second.complete) == (False, True)
    assert host.witness.overlaps() == []
    assert one.attempts("a") == [(1, "lost"), (2, "ok")]
    assert one.record("a")["metrics"]["start_ns"] == second.start_ns
