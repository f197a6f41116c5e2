"""A pod that dies under a run: what the engine makes of it, with its link still broken and when it is asked."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine import helpers_scripted
from engine.helpers_engine import command, make_plan, only, record, run
from engine.helpers_scripted import ScriptedClient
from sidewinder.engine import linkloss
from sidewinder.errors import TransportError
from sidewinder.files import journal, records, schedule
from sidewinder.files.layout import RunFolder
from sidewinder.model import AttemptId, Device, Failure, FailureClass
from sidewinder.transports.messages import Status

DEVICES = (Device("pod", "ssh"),)
LEASE_S, GRACE_S = 0.2, 0.5
UTC = "2026-01-01T00:00:00.000+00:00"


def death(failure_class):
    return Failure(failure_class, "pod p was ended. It is over: seen", {"cause": "evicted", "proof": "container"})


class PodClient(ScriptedClient):
    """Its machine's ``life`` changes with each death; ``deaths`` are what becomes of the next runs."""

    def __init__(self, machine):
        super().__init__(machine)
        self.told = None

    async def wait(self, run_id, n):
        if self.machine.deaths:
            self.told = self.machine.deaths.pop(0)
            self.machine.ran.clear()
            raise TransportError("pod: the stream ended")
        return await super().wait(run_id, n)

    async def death_of(self, run_id, n):
        return self.told if self.machine.is_told_at_once else None

    async def death_in(self, boot):
        return self.machine.dies_in_start

    def boot_of(self, run_id, n):
        return self.machine.boot

    def began_in(self, run_id, n, boot):
        self.machine.began.append((run_id, n, boot))

    async def status(self, run_id, n):
        if self.told is not None:
            told, self.told = self.told, None
            return Status("lost", "rebooted", n, told)
        return await super().status(run_id, n)


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(helpers_scripted, "ScriptedClient", PodClient)
    one = helpers_scripted.scripted(monkeypatch, "pod")["pod"]
    one.deaths, one.is_told_at_once, one.boot, one.began = [], True, "life-1", []
    one.dies_in_start = None
    return one


def sweep(root, machine):
    plan = make_plan(root, [command("true", device="pod")], devices=DEVICES)
    told = run(root, plan)
    return told, record(root, plan, only(plan))


def ledger(root):
    return [json.loads(line) for line in (root / "retries.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("failure_class", [FailureClass.MEMORY, FailureClass.MEASUREMENT])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "when asked"])
def test_a_result_without_a_raw_one_is_a_whole_record(tmp_path, machine, failure_class, at_once):
    machine.deaths, machine.is_told_at_once = [death(failure_class)], at_once
    told, written = sweep(tmp_path, machine)
    assert list(told.done.values()) == ["failed"]
    assert machine.asked["start"] == 1
    assert machine.asked["ack"] == 0, "nothing is there that could forget"
    assert machine.asked["stop"] == 0
    whole = records.read(RunFolder(str(tmp_path)).record("pod", written["run_id"]))
    assert whole.status == "failed"
    assert written["failure"]["evidence"] == {"cause": "evicted", "proof": "container"}
    (attempt,) = written["attempts"]
    assert (attempt["outcome"], attempt["class"]) == ("failed", failure_class.value)
    assert attempt["evidence"]["cause"] == "evicted"
    assert "start_utc" in attempt
    assert "end_utc" in attempt
    assert journal.replay(str(tmp_path)).in_flight == {}


@pytest.mark.parametrize("failure_class", [FailureClass.PREEMPTED, FailureClass.TRANSPORT])
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "when asked"])
def test_a_death_that_is_repeated_is_told_everywhere(tmp_path, machine, failure_class, at_once):
    machine.deaths, machine.is_told_at_once = [death(failure_class)], at_once
    told, written = sweep(tmp_path, machine)
    assert list(told.done.values()) == ["ok"]
    assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "lost"), (2, "ok")]
    assert written["attempts"][0]["class"] == failure_class.value
    assert written["attempts"][0]["evidence"] == {"cause": "evicted", "proof": "container"}
    repeated = "preempted" if failure_class is FailureClass.PREEMPTED else "repeat"
    (line,) = [line for line in ledger(tmp_path) if line["event"] == repeated]
    assert line["evidence"] == {"cause": "evicted", "proof": "container"}
    journaled = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    (dead,) = [line for line in journaled if line["event"] == "died"]
    assert (dead["n"], dead["class"], dead["cause"], dead["proof"]) == (1, failure_class.value, "evicted", "container")
    assert any("It is over: seen" in warning for warning in written["warnings"])
    asked = not at_once  # then the link's own failure was counted before anybody knew
    counted = failure_class is FailureClass.TRANSPORT or asked
    assert schedule.read(str(tmp_path))["transport_failures"] == counted


def test_a_death_that_only_the_lease_proves_is_waited_for(tmp_path, machine, monkeypatch):
    """The lease proves it some seconds after the last try to reconnect may begin. Found by the soak in pods: each pod
    that was lost with its node cost an attempt, and the device a failure."""
    monkeypatch.setattr(linkloss, "OUTLIVES_S", LEASE_S + GRACE_S)
    machine.deaths, machine.is_told_at_once = [death(FailureClass.PREEMPTED)], False
    dead = death(FailureClass.PREEMPTED)

    async def wait(client, run_id, n):
        if machine.deaths:
            machine.gone_for_s = LEASE_S + GRACE_S
            return await PodClient.wait(client, run_id, n)
        return Status("lost", "rebooted", n, dead) if n == 1 else await PodClient.wait(client, run_id, n)

    async def connect(client):
        gone_for_s, machine.gone_for_s = machine.gone_for_s, 0.0
        await asyncio.sleep(gone_for_s)
        return await PodClient.connect(client)

    machine.gone_for_s = 0.0
    patient = type("PatientClient", (PodClient,), {"wait": wait, "connect": connect, "lease_s": LEASE_S})
    monkeypatch.setattr(helpers_scripted, "ScriptedClient", patient)
    told, written = sweep(tmp_path, machine)
    assert list(told.done.values()) == ["ok"]
    assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "lost"), (2, "ok")]
    assert schedule.read(str(tmp_path))["transport_failures"] == 0


def test_the_journal_knows_in_which_life_an_attempt_began(tmp_path, machine):
    """The pod is made anew between the claim and the start: the next controller must know the later one."""
    machine.on["clock"] = lambda *_: setattr(machine, "boot", "life-2")
    sweep(tmp_path, machine)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    told = [(line["event"], line.get("boot")) for line in lines if line["event"] in ("claimed", "boot")]
    assert told in ([("claimed", "life-1"), ("boot", "life-2")], [("claimed", None), ("boot", "life-2")])


@pytest.mark.parametrize("failure_class", [FailureClass.PREEMPTED, FailureClass.MEMORY])
def test_a_pod_that_goes_while_a_run_is_started(tmp_path, machine, failure_class):
    """An eviction is none of the device's doing; of any other end nobody knows whether it was this attempt's."""
    machine.lose, machine.dies_in_start = ["start"], death(failure_class)
    told, written = sweep(tmp_path, machine)
    assert list(told.done.values()) == ["ok"]
    first = written["attempts"][0]
    if failure_class is FailureClass.PREEMPTED:
        assert (first["n"], first["class"], first["outcome"]) == (1, "preempted", "lost")
        assert schedule.read(str(tmp_path))["transport_failures"] == 0
    else:
        assert "memory" not in json.dumps(written["attempts"])
        assert schedule.read(str(tmp_path))["transport_failures"] == 1


def test_the_next_controller_is_told_of_it_and_claims_it_again_in_that_life(tmp_path, machine):
    plan = make_plan(tmp_path, [command("true", device="pod")], devices=DEVICES)
    run_id = only(plan)
    log = journal.Journal(str(tmp_path))
    log.append(journal.claimed(AttemptId(run_id, 1), "pod", UTC, boot="life-0"), sync=True)
    log.close()
    run(tmp_path, plan)
    assert machine.began == [(run_id, 1, "life-0")]
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    again = next(line for line in lines[1:] if line["event"] == "claimed")
    assert (again["n"], again["boot"]) == (1, "life-0"), "before the client is made it is what the journal says"
