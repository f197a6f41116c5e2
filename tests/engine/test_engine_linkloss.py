"""A link loss: how long and how often an attempt is called again, and what is written down about it."""

from __future__ import annotations

import asyncio
import inspect

from sidewinder.engine import linkloss
from sidewinder.engine.linkloss import LinkLoss
from sidewinder.errors import TransportError
from sidewinder.model import OUTLIVES_S, AttemptId, Task
from sidewinder.transports.client import AgentClient

A = AttemptId("0:r", 2)
GONE = TransportError("gone")


def drive(test, lease_s=60.0):
    notes = []

    async def body():
        await test(LinkLoss(A, "0:pi5", lease_s, notes.append))

    asyncio.run(body())
    return [(note.kind, note.fields) for note in notes]


def test_a_loss_and_its_end_are_told_once(monkeypatch):
    monkeypatch.setattr(linkloss, "PAUSES_S", (0.0,))

    async def test(loss):
        for _ in range(3):
            await loss.pause(GONE)
        assert loss.is_open
        loss.over("running")
        assert not loss.is_open
        await loss.pause(GONE)
        loss.over("finished")

    (first, lost), (second, back), *rest = drive(test)
    assert (first, lost["error"], lost["attempt"]) == ("link_lost", "gone", 2)
    assert (second, back["state"]) == ("reconnected", "running")
    assert [kind for kind, _ in rest] == ["link_lost", "reconnected"]


def test_a_run_that_is_gone_was_not_reconnected_to(monkeypatch):
    monkeypatch.setattr(linkloss, "PAUSES_S", (0.0,))

    async def test(loss):
        await loss.pause(GONE)
        loss.over("lost")

    assert [kind for kind, _ in drive(test)] == ["link_lost"]


def test_after_the_lease_it_is_not_called_again():
    async def test(loss):
        assert not await loss.pause(GONE)
        assert OUTLIVES_S - 1 < loss.may_run_s <= OUTLIVES_S  # its lease may have begun just now

    drive(test, lease_s=0.0)


def test_what_a_lost_run_may_still_run_grows_less_with_every_second():
    async def test(loss):
        loss._since_s = asyncio.get_running_loop().time() - 60.0
        assert not await loss.pause(GONE)
        assert 0.0 < loss.may_run_s <= OUTLIVES_S - 60.0
        loss._since_s -= 10.0
        assert loss.may_run_s == 0.0

    drive(test)


def test_the_core_knows_how_long_a_run_outlives_its_link():
    lease_s = inspect.signature(AgentClient.__init__).parameters["lease_s"].default
    assert lease_s + Task(("true",)).grace_s <= OUTLIVES_S


def test_nobody_waits_for_what_nobody_wants(monkeypatch):
    monkeypatch.setattr(linkloss, "PAUSES_S", (3600.0,))

    async def test(loss):
        waiting = asyncio.ensure_future(loss.pause(GONE))
        await asyncio.sleep(0)
        loss.give_up()
        assert not await waiting
        assert not await loss.pause(GONE)

    drive(test)


def test_the_tries_are_close_enough_for_a_result_within_3_seconds():
    assert max(linkloss.PAUSES_S) <= 2.0
