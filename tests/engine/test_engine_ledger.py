"""The ledger and the schedule: each repeat, failure and change is on disk at the moment it happens (M-119, M-120)."""

from __future__ import annotations

import json

import pytest

from engine.helpers_engine import QUICK, Told, command, make_plan, only, record, run
from engine.helpers_scripted import scripted
from sidewinder.engine import Engine
from sidewinder.files import schedule
from sidewinder.model import Device, Output, RawResult, RetryPolicy

PI = Device("pi", "ssh", max_transport_failures=3, recovery_after_s=0.02, give_up_after_s=0.05)
NOTHING = Output(b"", b"", 0)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def machine(monkeypatch):
    return scripted(monkeypatch, "pi")["pi"]


def points(count, **more):
    return [command("true", parameters={"i": i}, device="pi", **more) for i in range(count)]


def ledger(root):
    return [json.loads(line) for line in (root / "retries.jsonl").read_text().splitlines()]


def events(root):
    return [line["event"] for line in ledger(root)]


def test_a_transport_failure_has_the_keys_that_people_know(root, machine):
    plan = make_plan(root, points(1, model="m", model_path="/m"), devices=[PI])
    machine.refuse.append("start")
    run(root, plan)
    failure, repeat = ledger(root)
    assert failure["event"] == "transport_failure"
    assert failure["error"] == "pi: connection refused"
    wanted = {"event", "device", "model", "mode", "attempt", "max_attempts", "error", "breaker_opened", "utc", "run_id"}
    assert failure.keys() == wanted
    assert (failure["model"], failure["attempt"], failure["breaker_opened"]) == ("m", 1, False)
    assert (repeat["event"], repeat["run_id"]) == ("repeat", only(plan))
    warnings = record(root, plan, only(plan))["warnings"]
    assert any("attempt 1 failed on the way" in warning and "was repeated" in warning for warning in warnings)


def test_a_lost_answer_is_a_reattach_and_not_a_repeat(root, machine):
    plan = make_plan(root, points(1), devices=[PI])
    machine.lose.append("start")
    run(root, plan)
    assert events(root) == ["transport_failure", "reattached"]
    assert machine.ran == [(only(plan), 1)]
    assert not any("was repeated" in warning for warning in record(root, plan, only(plan))["warnings"])


def test_a_preempted_run_is_a_line_of_its_own(root, machine):
    plan = make_plan(root, points(1), devices=[PI])
    machine.returncode = 143
    machine.on["fetch"] = lambda *_: setattr(machine, "returncode", 0)
    run(root, plan)
    assert events(root) == ["preempted"]
    assert any("preempted" in warning for warning in record(root, plan, only(plan))["warnings"])


def test_an_attempt_of_an_earlier_controller_is_adopted(root, machine):
    plan = make_plan(root, points(1), devices=[PI])
    run_id = only(plan)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    machine.hold.add(run_id)
    machine.on["wait"] = lambda *_: setattr(machine, "down", True)
    engine.submit([(str(root), run_id)])
    told.until(lambda _: machine.asked["wait"], "it runs")
    told.until(lambda _: (root / "retries.jsonl").exists(), "the link is lost")
    engine.cancel(True)
    told.wait(1)
    engine.shutdown(10)
    machine.down, machine.on = False, {}
    machine.results[run_id, 1] = RawResult("done", 0, 0.1, NOTHING, NOTHING)
    assert set(run(root, plan).done.values()) == {"ok"}
    assert machine.ran == [(run_id, 1)]
    assert "adopted" in events(root)
    assert any("of an earlier invocation was found finished" in w for w in record(root, plan, run_id)["warnings"])


def test_every_failure_and_failed_probe_is_counted_also_those_that_tripped_nothing(root, machine):
    """Defect 1.16.3 of the reference: only trips were counted."""
    once = QUICK.__class__(retry=RetryPolicy(max_attempts=1, backoff_s=0.01))
    plan = make_plan(root, points(1), devices=[PI], policy=once)
    machine.refuse += ["start"]
    run(root, plan)
    told = schedule.read(str(root))
    assert (told["transport_failures"], told["device_transport_failures"], told["breakers"]) == (1, {"pi": 1}, {})
    machine.down = True
    plan = make_plan(root.with_name("down"), points(2), devices=[PI])
    run(root.with_name("down"), plan)
    lines = ledger(root.with_name("down"))
    counted = sum(line["event"] in ("transport_failure", "probe_failed") for line in lines)
    told = schedule.read(str(root.with_name("down")))
    assert told["transport_failures"] == told["device_transport_failures"]["pi"] == counted
    assert told["breakers"]["pi"]["open_at_end"]
    assert [line["event"] for line in lines if line["event"] != "transport_failure"][-2:] == [
        "probe_failed",
        "given_up",
    ]


def test_the_schedule_says_at_once_that_a_device_is_down(root, machine):
    """As a crash leaves it: nobody has ended anything yet."""
    machine.down = True
    waits = Device("pi", "ssh", max_transport_failures=1, give_up_after_s=None, resource_group="board")
    plan = make_plan(root, points(2), devices=[waits])
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.until(lambda told: "down" in told.kinds(), "the device goes down")
    seen = schedule.read(str(root))
    assert seen["breakers"]["pi"]["trips"] == 1
    assert seen["device_transport_failures"] == {"pi": 1}
    assert seen["resource_groups"] == {"board": {"limit": 1, "devices": ["pi"]}}
    assert events(root) == ["transport_failure", "device_down"]
    engine.cancel(True)
    told.wait(2)
    assert engine.shutdown(10)


def test_the_schedule_has_every_key_of_the_reference(root, machine):
    plan = make_plan(root, points(2), devices=[PI])
    run(root, plan)
    told = schedule.read(str(root))
    assert told.keys() >= {
        *("mode", "requested", "skipped_already_done", "executed", "ok", "failed", "elapsed_s", "by_device"),
        *("concurrency", "resource_groups", "retry_policy", "transport_failures", "breakers", "clock_offsets"),
    }
    assert (told["requested"], told["ok"], told["by_device"]) == (2, 2, {"pi": {"ok": 2, "failed": 0}})
    clock = told["clock_offsets"]["pi"]
    assert (clock["status"], clock["offset_s"], clock["bound_s"]) == ("ok", 0.001, 0.0001)
