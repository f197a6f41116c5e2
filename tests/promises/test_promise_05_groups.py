"""Promise 5: a resource group never holds more than its limit; a live member waits at most (members - 1) jobs; back-off
and dead members hold no slot. What may still run counts: it keeps its turn until it is known to be over, at most for
its lease.

Shown with real runs of three devices that share this machine, one of which hangs whoever calls it. What a member costs
that dies in mid-run is told in seconds in ``tests/core/test_core_groups.py``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import Told, make_plan, run
from engine.helpers_scripted import ScriptedClient, scripted
from promises.helpers_promises import Diary, Property, campaigns, here
from sidewinder.core import instructions as do
from sidewinder.engine import Engine
from sidewinder.model import Device
from sidewinder.testing import World


def test_never_more_than_the_limit_really_run(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    names = ("a", "b", "c")
    devices = [here(tmp_path, name, resource_group="board") for name in names]
    points = [diary.point(f"{name}{i}", sleep_s=0.5, device=name) for name in names for i in range(2)]
    plan = make_plan(root, points, devices=devices)
    assert set(run(root, plan).done.values()) == {"ok"}
    assert sum(diary.began().values()) == 6
    assert diary.most_at_once() == 1, diary.words


def test_a_member_that_hangs_whoever_calls_it_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = scripted(monkeypatch, "hangs", "live")
    real = ScriptedClient.connect

    async def connect(self: Any) -> Any:
        if self.machine.name == "hangs":
            await asyncio.Event().wait()
        return await real(self)

    monkeypatch.setattr(ScriptedClient, "connect", connect)
    devices = [Device(name, "ssh", resource_group="board") for name in machines]
    points = [
        {"backend": "command", "command": ("true",), "device": name, "parameters": {"i": i}}
        for i in range(4)
        for name in machines  # the one that hangs first
    ]
    root = tmp_path / "runs"
    plan = make_plan(root, points, devices=devices)
    told = Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan)
    engine.submit([(str(root), run_id) for run_id in plan.points])
    told.wait(4)  # the live one's, all of them, while the other one's call never ends
    assert len(machines["live"].ran) == 4
    assert set(told.done.values()) == {"ok"}
    engine.cancel(drain=False)
    told.wait(8)
    engine.shutdown(0.1)  # it is connecting still


def test_a_live_member_waits_for_one_job_of_each_of_the_others() -> None:
    names = ("a", "b", "c", "d")
    with World([Device(name, "ssh", resource_group="board") for name in names]) as world:
        for name in names:
            world.queue(*(f"{name}{i}" for i in range(3)), on=name)
        order = []
        for _ in range(12):
            (claim,) = [i for i in world.pending if isinstance(i, do.Journal)]
            order.append(claim.device)
            world.runs(claim.attempt.work_id)
            world.ends(claim.attempt.work_id)
        assert all(set(order[i : i + 4]) == set(names) for i in range(9)), order


def test_in_campaigns_with_groups_and_dead_members(record_property: Property) -> None:
    campaigns(record_property, "link lost", "call failed")
