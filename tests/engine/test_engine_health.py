"""Breakers and quarantines on disk: written at the moment, taken up by the next invocation (promise 6)."""

from __future__ import annotations

import json

import pytest

from engine.helpers_engine import QUICK, Told, command, make_plan, record, run
from engine.helpers_scripted import scripted
from sidewinder.engine import Engine, devices
from sidewinder.files import journal
from sidewinder.model import Device

PI = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=0.02, give_up_after_s=0.05)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def points(count, **more):
    return [command("true", parameters={"i": i}, **{"device": "pi", **more}) for i in range(count)]


def lines(root, name, **wanted):
    found = [json.loads(line) for line in (root / name).read_text().splitlines()]
    return [line for line in found if all(line.get(key) == value for key, value in wanted.items())]


def test_a_device_that_is_down_is_in_the_journal_while_the_sweep_still_waits_for_it(root, monkeypatch):
    machines = scripted(monkeypatch, "pi")
    machines["pi"].down = True
    plan = make_plan(root, points(3), devices=[Device("pi", "ssh", max_transport_failures=1, give_up_after_s=None)])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda told: "down" in told.kinds(), "the device goes down")
    (line,) = lines(root, "journal.jsonl", event="breaker")
    assert (line["device"], line["state"], line["change"]) == ("pi", "open", "device_down")
    assert "no route to host" in line["reason"]
    assert line["next_probe_utc"] > line["utc"] >= line["down_since_utc"]
    engine.cancel(True)
    told.wait(3)
    assert engine.shutdown(10)


def test_the_next_invocation_probes_at_once_and_goes_on_where_the_device_is_well_again(root, monkeypatch):
    machines = scripted(monkeypatch, "pi")
    machine = machines["pi"]
    machine.down = True
    plan = make_plan(root, points(2), devices=[PI])
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    changes = [line["change"] for line in lines(root, "journal.jsonl", event="breaker")]
    assert changes[0] == "device_down"
    assert changes[-1] == "given_up"
    assert set(changes[1:-1]) == {"probe_failed"}
    assert journal.replay(str(root)).breakers["pi"]["state"] == "open"

    machine.down = False
    machine.asked.clear()
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    assert machine.asked["probe"] == 1
    assert told.kinds().count("up") == 1
    (up,) = lines(root, "journal.jsonl", change="device_up")
    assert up["state"] == "closed"
    trial = next(record(root, plan, run_id) for run_id, _ in machine.ran[:1])
    assert any("first run after its device had been down" in warning for warning in trial["warnings"])

    machine.asked.clear()
    assert set(run(root, plan, forced=frozenset(plan.points)).done.values()) == {"ok"}
    assert machine.asked["probe"] == 0, "nobody probes a device that is well"


def test_nothing_is_given_up_before_a_probe_of_this_invocation_has_failed(root, monkeypatch):
    machine = scripted(monkeypatch, "pi")["pi"]
    machine.down = True
    plan = make_plan(root, points(2), devices=[PI])
    run(root, plan)
    machine.asked.clear()
    failed = len(lines(root, "journal.jsonl", change="probe_failed"))
    run(root, plan)
    assert len(lines(root, "journal.jsonl", change="probe_failed")) > failed
    assert machine.asked["start"] == 0, "no point was sent before a probe had passed"


def test_a_quarantine_stays_until_a_probe_passes(root, monkeypatch):
    machine = scripted(monkeypatch, "pi")["pi"]
    machine.unfit = "its disk is full"
    plan = make_plan(root, points(2), devices=[PI])
    assert set(run(root, plan).done.values()) == {"hole"}
    (line,) = lines(root, "journal.jsonl", state="quarantined", change="quarantined")
    assert "its disk is full" in line["reason"]
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    assert machine.ran == []
    assert journal.replay(str(root)).breakers["pi"]["state"] == "quarantined"
    machine.unfit = None
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    assert told.kinds().count("up") == 2, "the quarantine was lifted, then a run came back"
    assert journal.replay(str(root)).breakers["pi"]["state"] == "closed"


def test_each_lab_has_its_own_retry_policy(tmp_path, monkeypatch):
    """Two labs in one engine; the second one's device loses its way once too often for its lab alone."""
    machines = scripted(monkeypatch, "pi", "pa")
    told = Told()
    engine = Engine(told)
    keys = {}
    for name, tries in (("pi", 3), ("pa", 1)):
        policy = QUICK.__class__(retry=QUICK.retry.__class__(max_attempts=tries, backoff_s=0.01, jitter=0.0))
        device = Device(name, "ssh", max_transport_failures=10)
        plan = make_plan(tmp_path / name, points(1, device=name), devices=[device], policy=policy)
        machines[name].refuse.append("start")
        engine.add_lab(str(tmp_path / name), plan)
        keys[name] = (str(tmp_path / name), next(iter(plan.points)))
    engine.submit(keys.values())
    told.wait(2)
    assert engine.shutdown(10)
    assert {name: told.done[key] for name, key in keys.items()} == {"pi": "ok", "pa": "hole"}
    assert "warning" not in told.kinds()


def test_a_full_disk_keeps_a_quarantine_until_there_is_room(root, monkeypatch):
    machine = scripted(monkeypatch, "pi")["pi"]
    machine.unfit = "its disk is full"
    plan = make_plan(root, points(2), devices=[PI])
    run(root, plan)
    machine.unfit, machine.free_kib = None, 1024
    told = run(root, plan)
    assert set(told.done.values()) == {"hole"}
    assert machine.asked["start"] == 0, "no point is sent to find out what a look can tell"
    assert "has 1 MiB left" in record(root, plan, next(iter(plan.points)))["error"]
    machine.free_kib = 1 << 20
    assert set(run(root, plan).done.values()) == {"ok"}


@pytest.mark.parametrize("said", [b"", b"df: no such folder\n", b"Filesystem x\n/dev/x 9 9 - 9% /\n", b"\xff\n\xff"])
def test_a_disk_that_cannot_be_looked_at_is_no_full_disk(said):
    assert devices._free_bytes(said) is None
