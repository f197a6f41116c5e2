"""The idle gate: on made-up counters, and in real runs on this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.conftest import Here
from agent.helpers_agent import Bench, drive, ended, eventually, run, sh
from sidewinder.agent.idle import NotIdle, busiest, process_ticks, wait_for_idle
from sidewinder.model import RawResult

GATE = {"max_busy_share": 0.1, "window_s": 1.0, "wait_s": 0.0}


class Machine:
    """/proc of a machine with two cores, as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.busy = self.total = 0
        (root / "proc").mkdir(parents=True, exist_ok=True)
        self.passes(0, 0)

    def passes(self, busy: int, total: int) -> None:
        """So many ticks of both cores together."""
        self.busy, self.total = self.busy + busy, self.total + total
        idle = self.total - self.busy
        text = f"cpu  {self.busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\ncpu1 1 0 0 1 0 0 0 0 0 0\nintr 9\n"
        temporary = self.root / "proc/stat.new"
        temporary.write_text(text)
        temporary.rename(self.root / "proc/stat")  # a reader finds the old or the new one

    def process(self, pid: int, comm: str, ticks: int) -> None:
        folder = self.root / "proc" / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} ({comm}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "root")


def test_an_idle_machine_passes_after_one_window(machine: Machine) -> None:
    waited: list[float] = []

    def settle(seconds: float) -> None:
        waited.append(seconds)
        machine.passes(19, 200)

    seen = wait_for_idle(GATE, str(machine.root), settle)
    assert waited == [1.0]
    assert seen["busy_share"] == 0.095
    assert seen["max_busy_share"] == 0.1
    assert seen["waited_s"] >= 0


def test_a_busy_machine_is_waited_for(machine: Machine) -> None:
    shares = iter([200, 100, 21, 20])

    def settle(_seconds: float) -> None:
        machine.passes(next(shares), 200)

    seen = wait_for_idle(dict(GATE, wait_s=1e6), str(machine.root), settle)
    assert seen["busy_share"] == 0.1
    assert list(shares) == []


def test_one_that_stays_busy_is_refused_naming_who_works_there(machine: Machine) -> None:
    ticks = iter(range(0, 1000, 100))

    def settle(_seconds: float) -> None:
        machine.passes(180, 200)
        machine.process(4, "kworker/0:1", 0)
        machine.process(11, "make -j) 2", next(ticks) * 97 // 100)

    with pytest.raises(NotIdle) as caught:
        wait_for_idle(GATE, str(machine.root), settle)
    assert caught.value.seen["busy_share"] == 0.9
    assert caught.value.seen["busiest"] == [{"pid": 11, "comm": "make -j) 2", "cpu_share": 0.97}]
    text = str(caught.value)
    assert "90% of its 2 cores' time was spent, idle_gate allows 10%" in text
    assert "make -j) 2 (pid 11, 97% of a core)" in text


def test_counters_that_stand_still_are_no_idle_machine(machine: Machine) -> None:
    with pytest.raises(NotIdle, match="nothing that can be seen"):
        wait_for_idle(GATE, str(machine.root), lambda _seconds: None)


def test_a_machine_that_cannot_say_is_not_called_idle(tmp_path: Path) -> None:
    seen = wait_for_idle(GATE, str(tmp_path), lambda _seconds: None)
    assert "busy_share" not in seen
    assert "does not say" in seen["reason"]


def test_the_busiest_are_those_that_worked_between_the_looks() -> None:
    before = {1: ("init", 900), 2: ("old", 50), 3: ("reused", 10)}
    after = {1: ("init", 900), 2: ("old", 90), 3: ("other", 5), 4: ("new", 20)}
    assert busiest(before, after, 100) == [
        {"pid": 2, "comm": "old", "cpu_share": 0.4},
        {"pid": 4, "comm": "new", "cpu_share": 0.2},
        {"pid": 3, "comm": "other", "cpu_share": 0.05},
    ]


def test_this_machine_can_be_looked_at() -> None:
    table = process_ticks("/")
    assert os.getppid() in table
    assert os.getpid() not in table


@pytest.fixture
def burner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
    yield process
    process.kill()
    process.wait()


def test_a_run_on_an_idle_machine_has_the_reading_in_its_evidence(here: Here) -> None:
    raw = here.measure(sh("echo ran", idle_gate={"max_busy_share": 1.0, "window_s": 0.1, "wait_s": 0.0}))
    assert (raw.state, raw.stdout.head) == ("done", b"ran\n")
    assert 0 <= raw.evidence["idle"]["busy_share"] <= 1
    assert raw.evidence["idle"]["waited_s"] >= 0.1


def test_a_run_without_a_gate_has_no_reading(here: Here) -> None:
    assert "idle" not in here.measure(sh("true")).evidence


def test_a_run_on_a_busy_machine_never_starts(here: Here, burner: Any, tmp_path: Path) -> None:
    gate = {"max_busy_share": 0.0, "window_s": 0.2, "wait_s": 0.0}
    raw = here.measure(sh(f"touch {tmp_path}/ran", idle_gate=gate))
    assert (raw.state, raw.error, raw.returncode) == ("refused", "not_idle", None)
    assert "the device was not idle" in str(raw.detail)
    assert raw.evidence["idle"]["busy_share"] > 0
    assert {"pid", "comm", "cpu_share"} == set(raw.evidence["idle"]["busiest"][0])
    assert not (tmp_path / "ran").exists()


def test_a_run_starts_when_the_others_are_done(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "root")
    worker = {"busy": True}

    async def work() -> None:
        while True:
            machine.passes(100 if worker["busy"] else 0, 100)
            await asyncio.sleep(0.01)

    async def body(bench: Bench) -> RawResult:
        client = await bench.client()
        working = asyncio.create_task(work())
        gate = {"max_busy_share": 0.5, "window_s": 0.1, "wait_s": 1000.0}
        await client.start("run", 1, sh("echo ran", idle_gate=gate))
        assert (await client.status("run", 1)).state == "running"  # it answers while it waits
        worker["busy"] = False
        assert (await ended(client, "run")).state == "finished"
        working.cancel()
        return await client.fetch("run", 1)

    raw = drive(tmp_path / "state", body, root=str(machine.root))
    assert raw.stdout.head == b"ran\n"
    assert raw.evidence["idle"]["busy_share"] <= 0.5


def test_a_run_that_waits_can_be_stopped(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "root")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        gate = {"max_busy_share": 0.5, "window_s": 0.1, "wait_s": 1000.0}  # counters that stand still are never idle
        await client.start("run", 1, sh(f"touch {tmp_path}/ran", idle_gate=gate))
        assert await client.stop("run", 1)
        assert (await client.status("run", 1)).state == "finished"
        assert (await client.fetch("run", 1)).state == "stopped"

    drive(tmp_path / "state", body, root=str(machine.root))
    assert not (tmp_path / "ran").exists()


def test_a_run_that_waits_gives_up_when_the_controller_is_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "root")

    async def body(bench: Bench) -> None:
        client = await bench.client("one", lease_s=0.5)
        gate = {"max_busy_share": 0.5, "window_s": 0.1, "wait_s": 1000.0}
        await client.start("run", 1, sh("true", idle_gate=gate))
        await client.close()
        await eventually(lambda: (bench.record("run") / "result").exists())
        other = await bench.client("two")
        assert (await other.fetch("run", 1)).state == "lease_expired"
        assert (await run(other, "next", sh("true"))).state == "done"  # and the slot is free

    drive(tmp_path / "state", body, root=str(machine.root))
