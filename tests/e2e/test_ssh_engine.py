"""The engine over real SSH servers: what is measured, what a bad link costs, what a bad device costs the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import ProxyThread, Sshd, children_of, keygen, needs_sshd, nobody
from engine.helpers_engine import Told, command, make_plan, only, record, run
from sidewinder.engine import Engine
from sidewinder.model import Device, Plan
from sidewinder.transports import ssh_target

pytestmark = needs_sshd
CONTROLLER = Path(__file__).parents[1] / "engine" / "controller_script.py"


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests; a silent link is noticed at once."""
    nobody(tmp_path, monkeypatch)
    monkeypatch.setattr(ssh_target, "KEEPALIVE_S", 0.2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


class Held:
    """One point that says when it began, waits for ``let_go`` and says when it ended."""

    def __init__(self, folder: Path, devices: list[Device]) -> None:
        self.root, self._log, self._go = folder / "runs", folder / "ran", folder / "go"
        code = (
            "import os, time\n"
            f"fd = os.open({str(self._log)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT); os.write(fd, b'began ')\n"
            f"while not os.path.exists({str(self._go)!r}): time.sleep(0.01)\n"
            "print('n=1'); os.write(fd, b'ended ')\n"
        )
        point = command(sys.executable, "-c", code, metrics={"n": r"n=(\d)"}, device=devices[0].id)
        self.plan = make_plan(self.root, [point], devices=devices)

    def let_go(self) -> None:
        self._go.touch()

    @property
    def said(self) -> list[str]:
        return self._log.read_text().split() if self._log.exists() else []

    @property
    def record(self) -> dict[str, Any]:
        return record(self.root, self.plan, only(self.plan))

    @property
    def ledger(self) -> list[str]:
        return [json.loads(line)["event"] for line in (self.root / "retries.jsonl").read_text().splitlines()]


class Sweep:
    """One engine and what it told."""

    def __init__(self, held: Held) -> None:
        self.told = Told()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(held.root), held.plan)
        self.engine.submit([(str(held.root), run_id) for run_id in held.plan.points])

    def until_lost(self) -> None:
        self.told.until(lambda told: "link_lost" in told.kinds(), "the lost link is told")


@pytest.fixture
def begin() -> Iterator[Callable[[Held], Sweep]]:
    sweeps: list[Sweep] = []

    def begin(held: Held) -> Sweep:
        sweeps.append(Sweep(held))
        sweeps[-1].told.until(lambda told: held.said == ["began"] and told.started, "the point runs")
        return sweeps[-1]

    yield begin
    for sweep in sweeps:
        sweep.engine.shutdown(20)


def _command_points(plan_root: Path, devices: list[Device]) -> Plan:
    points = [command("sh", "-c", "echo n=7", metrics={"n": r"n=(\d)"}, device=device.id) for device in devices]
    return make_plan(plan_root, points, devices=devices)


def test_a_point_is_measured_over_ssh(server: Sshd, tmp_path: Path) -> None:
    plan = _command_points(tmp_path / "runs", [server.device()])
    told = run(tmp_path / "runs", plan)
    assert set(told.done.values()) == {"ok"}
    written = record(tmp_path / "runs", plan, only(plan))
    assert written["metrics"]["n"] == 7
    assert written["device"]["kind"] == "ssh"
    assert abs(written["clock"]["offset_s"]) <= written["clock"]["bound_s"] + 0.001, "it is the same clock"
    assert "warnings" not in written or not written["warnings"]
    assert not list(server.state.glob("runs/*/*.1")), "the result was acknowledged"


@pytest.mark.parametrize("how", ["silent", "reset", "session-killed", "server-restarted"])
def test_a_link_that_is_cut_during_a_run_loses_nothing(
    how: str, server: Sshd, tmp_path: Path, begin: Callable[[Held], Sweep]
) -> None:
    with ProxyThread(server.port) as proxy:
        held = Held(tmp_path, [server.device(port=proxy.port)])
        sweep = begin(held)
        proxy.do(lambda one: setattr(one, "refuses", True))
        match how:
            case "silent":
                proxy.do(lambda one: one.swallow())
            case "reset":
                proxy.do(lambda one: one.reset())
            case "session-killed":
                server.cut_sessions()
            case "server-restarted":
                server.die()
        sweep.until_lost()
        held.let_go()  # it ends while nobody can hear it
        sweep.told.until(lambda _: held.said == ["began", "ended"], "the run goes on without us")
        if how == "server-restarted":
            server.start()
        proxy.do(lambda one: (setattr(one, "refuses", False), one.heal()))
        sweep.told.wait(1)
        assert sweep.engine.shutdown(20)
    assert held.said == ["began", "ended"], "one execution"
    written = held.record
    assert written["status"] == "ok"
    assert [attempt["n"] for attempt in written["attempts"]] == [1]
    assert held.ledger == ["link_lost", "reconnected"]
    assert any("the link was lost" in warning for warning in written["warnings"])


def test_stopping_while_the_link_is_down_does_not_wait_for_it(
    server: Sshd, tmp_path: Path, begin: Callable[[Held], Sweep]
) -> None:
    with ProxyThread(server.port) as proxy:
        held = Held(tmp_path, [server.device(port=proxy.port)])
        sweep = begin(held)
        proxy.do(lambda one: (setattr(one, "refuses", True), one.reset()))
        sweep.until_lost()
        sweep.engine.cancel(False)
        sweep.told.wait(1)
        assert set(sweep.told.done.values()) == {"cancelled"}
        assert sweep.engine.shutdown(20)
        held.let_go()


def test_the_controller_is_killed_and_comes_back(server: Sshd, tmp_path: Path) -> None:
    held = Held(tmp_path, [server.device()])
    argv = [sys.executable, str(CONTROLLER), str(held.root)]
    first = subprocess.Popen(argv)
    end_s = time.monotonic() + 60
    while held.said != ["began"]:
        assert time.monotonic() < end_s
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    held.let_go()
    again = subprocess.run(argv, capture_output=True, check=True, timeout=60)
    assert json.loads(again.stdout) == {only(held.plan): "ok"}
    assert held.said == ["began", "ended"]
    assert any("taken over" in warning for warning in held.record["warnings"])
    assert [attempt["n"] for attempt in held.record["attempts"]] == [1]


def test_a_run_that_is_killed_with_its_runner_is_measured_again(
    server: Sshd, tmp_path: Path, begin: Callable[[Held], Sweep]
) -> None:
    """As a reboot does it, but for the boot id."""
    held = Held(tmp_path, [server.device()])
    sweep = begin(held)
    (proc,) = server.state.glob("runs/*/*/proc.json")
    runner = json.loads(proc.read_text())["runner"]
    below = children_of(runner)
    os.kill(runner, signal.SIGKILL)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):  # it dies with its runner
            os.kill(pid, signal.SIGKILL)
    held.let_go()
    sweep.told.wait(1)
    assert sweep.engine.shutdown(20)
    written = held.record
    assert written["status"] == "ok"
    assert [(attempt["n"], attempt["outcome"]) for attempt in written["attempts"]] == [(1, "lost"), (2, "ok")]


def test_a_changed_host_key_makes_holes_and_the_others_are_measured(server: Sshd, tmp_path: Path) -> None:
    device = server.device()
    other = keygen(tmp_path / "other")
    Path(device.settings["known_hosts"]).write_text(f"[127.0.0.1]:{server.port} {Path(f'{other}.pub').read_text()}")
    local = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    plan = _command_points(tmp_path / "runs", [device, local, replace(local, id="second")])
    told = run(tmp_path / "runs", plan)
    outcomes = {plan.points[run_id].device: outcome for (_, run_id), outcome in told.done.items()}
    assert outcomes == {"pi5": "hole", "local": "ok", "second": "ok"}
    (run_id,) = (point.run_id for point in plan.points.values() if point.device == "pi5")
    failure = record(tmp_path / "runs", plan, run_id)["failure"]
    assert failure["evidence"]["cause"] == "device"
    assert "CHANGED" in failure["message"]
    assert "'pi5'" in failure["message"]
    assert "Accepted" not in server.log.read_text()


@pytest.mark.parametrize(
    ("settings", "outcome", "word"),
    [
        ({"user": "nobody-of-that-name"}, "hole", "login refused"),
        ({"identity_file": "/no/such/key"}, "failed", "/no/such/key"),
        ({"known_hosts": "/no/such/file"}, "hole", "devices enrol pi5"),
        ({"workdir": "/sys/sidewinder"}, "hole", "devices.pi5.workdir"),
        ({"ssh_options": ["-D", "1080"]}, "failed", "ssh_options"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_bad_settings_are_named(
    settings: dict[str, Any], outcome: str, word: str, server: Sshd, tmp_path: Path
) -> None:
    plan = _command_points(tmp_path / "runs", [server.device(**settings)])
    told = run(tmp_path / "runs", plan)
    assert set(told.done.values()) == {outcome}
    assert word in record(tmp_path / "runs", plan, only(plan))["failure"]["message"]
