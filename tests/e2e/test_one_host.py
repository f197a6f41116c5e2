"""Several devices of one lab that are one host: its two GPUs, or one machine under two names."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import Sshd, needs_sshd, nobody
from engine.helpers_engine import QUICK, Told, command, make_plan, noops, record, run
from sidewinder.core import occupancy
from sidewinder.engine import greeting
from sidewinder.model import Device, Plan
from sidewinder.transports import ssh_target

pytestmark = needs_sshd


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody(tmp_path, monkeypatch)
    monkeypatch.setattr(occupancy, "BUSY_POLL_S", 0.05)
    monkeypatch.setattr(greeting, "GREET_S", 30.0)  # this machine may be busy with other tests


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "host").start()
    yield one
    one.stop()


def twin(server: Sshd, tmp_path: Path, name: str, **more: Any) -> Device:
    """The same account of the same host by its other name, which no config can know."""
    known = tmp_path / "known_by_name"
    known.write_text(f"[localhost]:{server.port} {server.public_host_key()}\n")
    return replace(server.device(name, host="localhost", known_hosts=str(known)), **more)


def plan_of(root: Path, devices: list[Device], script: str = "echo n=7", each: int = 2) -> Plan:
    points = [
        command("sh", "-c", script, metrics={"n": r"n=(\d)"}, device=device.id, parameters={"i": i})
        for device in devices
        for i in range(each)
    ]
    return make_plan(root, points, devices=devices, policy=replace(QUICK, busy_wait_s=600.0))


def warnings_of(told: Told) -> list[str]:
    return [event["message"] for event in told.events if event["kind"] == "warning"]


def kinds_until_first_start(told: Told) -> list[str]:
    kinds = told.kinds()
    return kinds[: kinds.index("started")]


@pytest.mark.parametrize("locks", [("gpu0", "gpu1"), ("slot", "slot")], ids=["own-slots", "one-slot"])
def test_two_devices_of_one_account_leave_each_other_alone(
    locks: tuple[str, str], server: Sshd, tmp_path: Path
) -> None:
    """Each has its own link, and ends no run of the other; with one lock they wait for each other."""
    span = f"echo begin >> {tmp_path}/ran; sleep 0.2; echo end >> {tmp_path}/ran; echo n=7"
    first = replace(server.device("gpu0"), lock=locks[0], env={"CUDA_VISIBLE_DEVICES": "0"})
    second = twin(server, tmp_path, "gpu1", lock=locks[1], env={"CUDA_VISIBLE_DEVICES": "1"})
    plan = plan_of(tmp_path / "runs", [first, second], span)
    told = run(tmp_path / "runs", plan)
    assert set(told.done.values()) == {"ok"}
    for run_id in plan.points:
        written = record(tmp_path / "runs", plan, run_id)
        assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "ok")]
        assert not written.get("warnings")
    assert "link_lost" not in told.kinds()
    ran = (tmp_path / "ran").read_text().split()
    assert len(ran) == 8
    if locks[0] == locks[1]:
        assert ran == ["begin", "end"] * 4, "one slot holds one run"


def test_one_machine_under_two_names_is_told_before_anything_is_measured(server: Sshd, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "runs", [server.device("pi5"), twin(server, tmp_path, "pi5-again")])
    told = run(tmp_path / "runs", plan)
    same = [text for text in warnings_of(told) if "SAME MACHINE" in text]
    assert len(same) == 1, "once, not once a point"
    assert "pi5 and pi5-again show one boot id" in same[0]
    assert "warning" in kinds_until_first_start(told)
    boots = {json.loads(path.read_text())["device"]["boot_id"] for path in (tmp_path / "runs/records").rglob("*.json")}
    assert len(boots) == 1, "and the records hold it, for the report"


def test_this_machine_over_ssh_is_told_too(server: Sshd, tmp_path: Path) -> None:
    local = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    told = run(tmp_path / "runs", plan_of(tmp_path / "runs", [local, server.device("myself")], each=1))
    assert any("local and myself show one boot id" in text for text in warnings_of(told))


@pytest.mark.parametrize("how", ["a group", "one address", "nothing to measure"])
def test_nobody_is_called_or_told_where_turns_are_taken(
    how: str, server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    real = greeting.Greeting._call

    async def call(self: Any, device: str) -> None:
        called.append(device)
        await real(self, device)

    monkeypatch.setattr(greeting.Greeting, "_call", call)
    devices = [server.device("pi5"), twin(server, tmp_path, "pi5-again")]
    if how == "a group":
        devices = [replace(device, resource_group="box", group_max_concurrency=2) for device in devices]
    elif how == "one address":
        devices[1] = server.device("pi5-again")
    if how == "nothing to measure":
        points = [point for device in devices for point in noops(1, device=device.id)]
        plan = make_plan(tmp_path / "runs", points, devices=devices)
    else:
        plan = plan_of(tmp_path / "runs", devices, each=1)
    told = run(tmp_path / "runs", plan)
    assert set(told.done.values()) == {"ok"}
    assert not called
    assert not warnings_of(told)


def test_a_device_that_does_not_answer_holds_nobody_up_for_long(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is given up, the others start, and it is called again when it is its turn."""
    monkeypatch.setattr(greeting, "GREET_S", 0.05)
    monkeypatch.setattr(ssh_target, "LOGIN_S", 0.5)
    with socket.socket() as takes_and_says_nothing:
        takes_and_says_nothing.bind(("127.0.0.1", 0))
        takes_and_says_nothing.listen(64)
        port = takes_and_says_nothing.getsockname()[1]
        gone = {"max_transport_failures": 1, "recovery_after_s": 0.05, "give_up_after_s": 0.0}
        silent = replace(server.device("silent", port=port), **gone)
        points = [command("sh", "-c", "echo n=7", metrics={"n": r"n=(\d)"}, device=name) for name in ("pi5", "silent")]
        plan = make_plan(tmp_path / "runs", points, devices=[server.device("pi5"), silent])
        told = run(tmp_path / "runs", plan)
    outcomes = {plan.points[run_id].device: outcome for (_, run_id), outcome in told.done.items()}
    assert outcomes == {"pi5": "ok", "silent": "hole"}
