"""A member of a group that has to be had anew (its pod is gone and no node has room): nobody waits for it."""

from __future__ import annotations

import asyncio

import pytest

from engine import helpers_scripted
from engine.helpers_engine import Told, command, make_plan
from engine.helpers_scripted import ScriptedClient
from sidewinder.engine import Engine, dispatch, linkloss
from sidewinder.errors import TransportError
from sidewinder.model import Device

LEASE_S = 0.3


class PodClient(ScriptedClient):
    """As a client of a pod: while its machine is ``gone`` a connection is not refused, it just does not come."""

    tell = None
    lease_s = LEASE_S

    async def connect(self):
        while getattr(self.machine, "gone", False):
            self.connected = False
            self.machine.asked["waited for"] += 1
            self.tell("no node has room for it")
            await asyncio.sleep(0.01)
        return await super().connect()

    async def status(self, run_id, n):
        """A machine that is there again has forgotten what ran on it."""
        found = await super().status(run_id, n)
        return found if (run_id, n) not in getattr(self.machine, "lost", ()) else found._replace(state="lost")


@pytest.fixture
def machines(monkeypatch):
    monkeypatch.setattr(helpers_scripted, "ScriptedClient", PodClient)
    monkeypatch.setattr(dispatch, "WITH_TURN_S", LEASE_S)
    monkeypatch.setattr(linkloss, "OUTLIVES_S", LEASE_S)
    return helpers_scripted.scripted(monkeypatch, "host", "pod")


def plan_of(root, group, counts):
    devices = [Device(name, "ssh", resource_group=group, max_transport_failures=9) for name in ("host", "pod")]
    points = [command("true", device=name, parameters={"i": i}) for name, count in counts.items() for i in range(count)]
    return make_plan(root, points, devices=devices)


def begin(root, plan):
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    return engine, told


def over(told, plan, device):
    return [
        run_id for (_, run_id), outcome in told.done.items() if outcome == "ok" and plan.points[run_id].device == device
    ]


def test_one_that_is_gone_when_it_is_its_turn_is_called_again_without_it(tmp_path, machines):
    machines["pod"].on["ack"] = lambda *_: setattr(machines["pod"], "gone", True)
    plan = plan_of(tmp_path / "runs", "silicon", {"host": 5, "pod": 2})
    engine, told = begin(tmp_path / "runs", plan)
    told.until(lambda told: len(over(told, plan, "host")) == 5, "the host is done")
    assert len(over(told, plan, "pod")) == 1
    told.until(lambda _: machines["pod"].asked["waited for"] > 100, "it is waited for still")
    machines["pod"].gone, machines["pod"].on = False, {}
    told.wait(7)
    assert engine.shutdown(20)
    assert set(told.done.values()) == {"ok"}
    assert [event["kind"] for event in told.events if "wait" in event["kind"]].count("waited") >= 1


def test_one_that_goes_in_mid_run_keeps_its_turn_for_a_lease_at_most(tmp_path, machines):
    pod = machines["pod"]
    pod.lost = set()

    def dies(run_id, n):
        if not pod.lost:
            pod.lost.add((run_id, n))
            pod.gone = True
            raise TransportError("its pod was deleted")

    pod.on["wait"] = dies
    plan = plan_of(tmp_path / "runs", "silicon", {"host": 5, "pod": 1})
    engine, told = begin(tmp_path / "runs", plan)
    told.until(lambda told: len(over(told, plan, "host")) == 5, "the host is done")
    assert pod.gone
    assert not over(told, plan, "pod")
    pod.gone = False
    told.wait(6)
    assert engine.shutdown(20)
    assert set(told.done.values()) == {"ok"}


def test_one_that_nobody_else_waits_for_is_waited_for_in_one_piece(tmp_path, machines):
    pod = machines["pod"]
    pod.gone = True
    plan = plan_of(tmp_path / "runs", None, {"pod": 1})
    engine, told = begin(tmp_path / "runs", plan)
    told.until(lambda _: pod.asked["waited for"] > 100, "it is waited for")
    pod.gone = False
    told.wait(1)
    assert engine.shutdown(20)
    assert [event["kind"] for event in told.events if event["kind"] in ("retry", "waiting", "waited")] == [
        "waiting",
        "waited",
    ]
