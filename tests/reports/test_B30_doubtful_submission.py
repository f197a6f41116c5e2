"""B30: the start went through and its answer was lost, so the same job ran twice.

A start names its attempt and is idempotent on the device; who does not know asks first and adopts. Here with a real
agent whose answers are lost or late, and with a controller that dies in that very moment; processes are counted by
what they wrote themselves.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import QUICK, Told, command, make_plan, only, record, run
from engine.helpers_scripted import scripted
from sidewinder.engine import Engine
from sidewinder.errors import TransportError
from sidewinder.model import Device, Plan, Policy, RetryPolicy
from sidewinder.transports.client import AgentClient
from sidewinder.transports.messages import Started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def plan(root: Path, ran: Path, tmp_path: Path) -> Plan:
    """One point that leaves a line and says where it ran."""
    code = (
        "import os\n"
        f"fd = os.open({str(ran)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "os.write(fd, (os.getcwd() + chr(10)).encode()); print('n=1')\n"
    )
    local = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    point = command(sys.executable, "-c", code, metrics={"n": r"n=(\d)"})
    return make_plan(root, [point], devices=[local], policy=QUICK)


Patch = pytest.MonkeyPatch
REAL_START, REAL_STATUS = AgentClient.start, AgentClient.status


def test_an_answer_that_is_lost_after_the_start_starts_nothing_twice(
    root: Path, ran: Path, plan: Plan, monkeypatch: Patch
) -> None:
    calls = []

    async def start(self: AgentClient, *args: Any) -> Started:
        calls.append(args[:2])
        answer = await REAL_START(self, *args)
        if len(calls) == 1:
            raise TransportError("local: the link broke before the answer to start")
        return answer

    monkeypatch.setattr(AgentClient, "start", start)
    told = run(root, plan)
    assert list(told.done.values()) == ["ok"]
    assert len(ran.read_text().splitlines()) == 1
    assert len(calls) == 1, "the device was asked, and knew the attempt"
    assert [attempt["n"] for attempt in record(root, plan, only(plan))["attempts"]] == [1]


def test_a_start_that_arrives_late_meets_its_own_repetition(
    root: Path, ran: Path, plan: Plan, monkeypatch: Patch
) -> None:
    """It seems lost, the device knows of nothing, the start is sent again; then the first one comes through as well."""
    late: list[asyncio.Task[Started]] = []
    second = asyncio.Event()

    async def start(self: AgentClient, *args: Any) -> Started:
        if not late:
            late.append(asyncio.get_running_loop().create_task(overtaken(self, *args)))
            raise TransportError("local: no answer to start in time")
        second.set()
        answer, _ = await asyncio.gather(REAL_START(self, *args), late[0])
        return answer

    async def overtaken(self: AgentClient, *args: Any) -> Started:
        await second.wait()
        return await REAL_START(self, *args)

    monkeypatch.setattr(AgentClient, "start", start)
    told = run(root, plan)
    assert list(told.done.values()) == ["ok"]
    assert late[0].result().outcome in ("started", "exists")
    assert len(ran.read_text().splitlines()) == 1


def test_a_controller_that_dies_between_start_and_answer_leaves_a_run_that_the_next_one_adopts(
    root: Path, ran: Path, plan: Plan, monkeypatch: Patch
) -> None:
    async def start(self: AgentClient, *args: Any) -> Started:
        await REAL_START(self, *args)
        raise RuntimeError("the controller dies here")

    with monkeypatch.context() as patched:
        patched.setattr(AgentClient, "start", start)
        told = Told()
        engine = Engine(told)
        engine.add_lab(str(root), plan)
        engine.submit([(str(root), only(plan))])
        told.until(lambda told: told.crash is not None, "it dies")
        engine.shutdown(10)
    assert told.done == {}
    told = run(root, plan)
    assert list(told.done.values()) == ["ok"]
    assert len(ran.read_text().splitlines()) == 1
    assert any("of an earlier invocation" in warning for warning in record(root, plan, only(plan))["warnings"])


def test_each_attempt_that_really_ran_had_a_folder_of_its_own(
    root: Path, ran: Path, plan: Plan, monkeypatch: Patch
) -> None:
    """The first one is lost by a reboot, as far as anybody knows: the second one runs in another folder."""
    calls = []
    real = AgentClient.wait

    async def wait(self: AgentClient, *args: Any) -> Any:
        ended = await real(self, *args)
        calls.append(args)
        return ended._replace(state="lost", why="rebooted") if len(calls) == 1 else ended

    async def status(self: AgentClient, *args: Any) -> Any:
        found = await REAL_STATUS(self, *args)
        return found._replace(state="lost", why="rebooted") if len(calls) == 1 else found

    monkeypatch.setattr(AgentClient, "wait", wait)
    monkeypatch.setattr(AgentClient, "status", status)
    told = run(root, plan)
    assert list(told.done.values()) == ["ok"]
    folders = ran.read_text().splitlines()
    assert len(folders) == len(set(folders)) == 2
    assert [attempt["n"] for attempt in record(root, plan, only(plan))["attempts"]] == [1, 2]


def test_whatever_is_lost_at_most_one_run_a_point(root: Path, monkeypatch: Patch) -> None:
    """Scripted machines: each of the first answers is lost, at every step of the way."""
    machine = scripted(monkeypatch, "pi")["pi"]
    machine.lose += ["start", "status", "wait", "fetch", "start", "status", "fetch"]
    pi = Device("pi", "ssh", recovery_after_s=0.02, give_up_after_s=None)
    policy = Policy(retry=RetryPolicy(max_attempts=3, backoff_s=0.005, max_backoff_s=0.01))
    points = [command("true", parameters={"i": i}, device="pi") for i in range(5)]
    plan = make_plan(root, points, devices=[pi], policy=policy)
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    assert len(machine.ran) == len({run_id for run_id, _ in machine.ran}) == 5
    assert machine.lose == []
