"""Two controllers: one device, or one run folder, that both want."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import Sshd, needs_sshd, nobody
from engine.helpers_engine import QUICK, Told, command, make_plan, record
from sidewinder.core import occupancy
from sidewinder.engine import Engine
from sidewinder.errors import InternalError, LockHeld
from sidewinder.files import heartbeat, lock, schedule
from sidewinder.files.holder import Holder
from sidewinder.model import Device, Plan


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody(tmp_path, monkeypatch)
    monkeypatch.setattr(occupancy, "BUSY_POLL_S", 0.05)


class Controller:
    """An engine on a run folder of its own, or on another's."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.told = Told()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(root), plan)
        self.engine.submit([(str(root), run_id) for run_id in plan.points])

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.told.events if event["kind"] == kind]

    def until_ended(self) -> set[str]:
        self.told.wait(len(self.plan.points))
        assert self.engine.shutdown(20)
        return set(self.told.done.values())

    def records(self) -> list[dict[str, Any]]:
        return [record(self.root, self.plan, run_id) for run_id in self.plan.points]

    def ledger(self) -> list[str]:
        path = self.root / "retries.jsonl"
        return [json.loads(line)["event"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def begin() -> Iterator[Callable[[Path, Plan], Controller]]:
    all_of_them: list[Controller] = []

    def begin(root: Path, plan: Plan) -> Controller:
        all_of_them.append(Controller(root, plan))
        return all_of_them[-1]

    yield begin
    for one in all_of_them:
        with suppress(InternalError):  # it has ended
            one.engine.cancel(False)
        one.engine.shutdown(20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5").start()
    yield one
    one.stop()


def waiting(folder: Path, i: int = 0) -> dict[str, Any]:
    """A point that says that it began, and waits to be let go."""
    script = f"touch {folder}/began{i}; until [ -e {folder}/go ]; do sleep 0.02; done; echo n=7"
    return command("sh", "-c", script, metrics={"n": r"n=(\d)"})


def plain(**more: Any) -> dict[str, Any]:
    return command("sh", "-c", "echo n=7", metrics={"n": r"n=(\d)"}, **more)


@needs_sshd
def test_a_device_that_another_controller_uses_is_waited_for(
    server: Sshd, tmp_path: Path, begin: Callable[[Path, Plan], Controller]
) -> None:
    device = server.device()
    first = begin(tmp_path / "a", make_plan(tmp_path / "a", [{**waiting(tmp_path), "device": "pi5"}], devices=[device]))
    first.told.until(lambda _: (tmp_path / "began0").exists(), "the first controller's point runs")
    second = begin(tmp_path / "b", make_plan(tmp_path / "b", [plain(device="pi5")], devices=[device]))
    second.told.until(lambda _: second.of("busy"), "the second one is told")
    (busy,) = second.of("busy")
    (run_id,) = first.plan.points
    assert busy["device"] == "pi5"
    assert f"{run_id}#1" in busy["holder"]
    assert f"@{socket.gethostname()}, pid {os.getpid()}" in busy["holder"]
    assert re.search(r"since 20\d\d-\d\d-\d\dT\d\d:\d\d", busy["holder"])
    assert not second.told.started
    assert not second.told.done
    (tmp_path / "go").touch()
    assert first.until_ended() == {"ok"}
    assert second.until_ended() == {"ok"}
    (written,) = second.records()
    assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "ok")]
    assert "retry" not in second.told.kinds()
    assert "down" not in second.told.kinds()
    assert not {"transport_failure", "repeat", "device_down"} & set(second.ledger())
    told = schedule.read(str(second.root))
    assert told is not None
    assert not told["transport_failures"]
    assert not told["breakers"]


@needs_sshd
def test_after_busy_wait_s_its_points_are_holes_that_say_so(
    server: Sshd, tmp_path: Path, begin: Callable[[Path, Plan], Controller]
) -> None:
    device, other = server.device(), Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    first = begin(tmp_path / "a", make_plan(tmp_path / "a", [{**waiting(tmp_path), "device": "pi5"}], devices=[device]))
    first.told.until(lambda _: (tmp_path / "began0").exists(), "the first controller's point runs")
    points = [plain(device="pi5", parameters={"i": i}) for i in range(2)] + [plain(device="local")]
    policy = replace(QUICK, busy_wait_s=0.3)
    second = begin(tmp_path / "b", make_plan(tmp_path / "b", points, devices=[device, other], policy=policy))
    assert second.until_ended() == {"hole", "ok"}
    holes = [one["failure"] for one in second.records() if one["status"] == "failed"]
    assert len(holes) == 2
    for hole in holes:
        assert hole["class"] == "not_attempted"
        assert "pi5 was busy with" in hole["message"]
        assert "of another controller" in hole["message"]
        assert f"pid {os.getpid()}" in hole["message"]
        assert "busy_wait_s: 0.3" in hole["message"]
    assert "down" not in second.told.kinds()
    assert not {"transport_failure", "repeat", "device_down", "quarantined"} & set(second.ledger())
    (tmp_path / "go").touch()
    assert first.until_ended() == {"ok"}
    again = begin(tmp_path / "b", second.plan)
    assert again.until_ended() == {"ok"}


# -- one run folder ---------------------------------------------------------------------------------------------------


class Elsewhere:
    """A controller on another host, by what it leaves in the folder."""

    def __init__(self, root: Path) -> None:
        self.path = root / "controller.lock"
        self.holder = Holder("login7", "another boot", 4711, "77", "2026-11-30T21:00:00+00:00")

    def takes_it(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.holder.encode().ljust(511) + b"\n")

    def beats(self) -> None:
        heartbeat.Heart(str(self.path), lambda: True).beat()


def test_a_controller_on_another_host_that_died_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[Path, Plan], Controller]
) -> None:
    for module, name in ((heartbeat, "WATCH_S"), (heartbeat, "LOOK_S"), (lock, "SETTLE_S")):
        monkeypatch.setattr(module, name, 0.01)
    plan = make_plan(tmp_path / "a", [plain()], devices=[here(tmp_path)])
    other = Elsewhere(tmp_path / "a")
    other.takes_it()
    other.beats()
    controller = begin(tmp_path / "a", plan)
    assert controller.until_ended() == {"ok"}
    first, second = (event["message"] for event in controller.of("warning")[:2])
    assert "login7 (pid 4711, since 2026-11-30T21:00:00+00:00)" in first
    assert "taken over if it stands still" in first
    assert "stood still" in second


def test_a_controller_on_another_host_that_lives_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Elsewhere(tmp_path / "a")
    plan = make_plan(tmp_path / "a", [plain()], devices=[here(tmp_path)])
    other.takes_it()
    other.beats()
    monkeypatch.setattr(heartbeat, "LOOK_S", 0.0)
    look = heartbeat.read

    def read(path: str) -> bytes | None:
        seen = look(path)
        other.beats()
        return seen

    monkeypatch.setattr(heartbeat, "read", read)
    with pytest.raises(LockHeld, match=r"login7 \(pid 4711, since .*heartbeat moves"):
        Engine(Told()).add_lab(str(tmp_path / "a"), plan)


def test_a_controller_that_was_taken_over_starts_nothing_more(
    tmp_path: Path, begin: Callable[[Path, Plan], Controller]
) -> None:
    """Its machine slept. What ran is kept, what did not is the other's."""
    points = [{**waiting(tmp_path, i), "parameters": {"i": i}} for i in range(3)]
    controller = begin(tmp_path / "a", make_plan(tmp_path / "a", points, devices=[here(tmp_path)]))
    controller.told.until(lambda _: list(tmp_path.glob("began*")), "one runs")
    Elsewhere(tmp_path / "a").takes_it()
    (tmp_path / "go").touch()
    controller.told.wait(3)
    assert controller.engine.shutdown(20)
    assert sorted(controller.told.done.values()) == ["cancelled", "cancelled", "ok"]
    assert len(list(tmp_path.glob("began*"))) == 1
    assert any("taken over by another controller" in event["message"] for event in controller.of("warning"))
    assert [one.host for one in lock.holders(str(tmp_path / "a"))] == ["login7"]


def here(tmp_path: Path) -> Device:
    return Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
