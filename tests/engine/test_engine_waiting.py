"""A device that cannot be had yet: displays and the schedule say why, and that it is over."""

from __future__ import annotations

import asyncio

import pytest

from engine import helpers_scripted
from engine.helpers_engine import command, make_plan, run
from engine.helpers_scripted import ScriptedClient
from logger.test_live_view import Displayed
from sidewinder.engine.waiting import Waiting
from sidewinder.errors import TransportError
from sidewinder.files import schedule
from sidewinder.model import Device

DEVICES = (Device("pod", "ssh"),)


class WaitingClient(ScriptedClient):
    """As a transport that may have to wait: it is had after ``waits`` has told why, at every connection."""

    tell = None

    async def connect(self):
        if not self.connected:
            self.machine.waits(self.tell)
        return await super().connect()


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(helpers_scripted, "ScriptedClient", WaitingClient)
    return helpers_scripted.scripted(monkeypatch, "pod")["pod"]


def sweep(root, machine, waits):
    machine.waits = waits
    plan = make_plan(root, [command("true", device="pod")], devices=DEVICES)
    return run(root, plan, told=Displayed())


def test_displays_are_told_why_and_that_it_is_over(tmp_path, machine):
    seen = []

    def waits(tell):
        for reason in ("its pod was created", "no node has room", "no node has room"):
            tell(reason)
            seen.append(schedule.read(str(tmp_path / "runs")).get("waiting"))

    told = sweep(tmp_path / "runs", machine, waits)
    events = [event for event in told.events if event["kind"] in ("waiting", "waited")]
    assert [(event["kind"], event.get("reason"), event["device"]) for event in events] == [
        ("waiting", "its pod was created", "pod"),
        ("waiting", "no node has room", "pod"),
        ("waited", None, "pod"),
    ]
    assert len({event["since_utc"] for event in events[:2]}) == 1, "it is one wait"
    assert events[2]["ready"] is True
    assert told.screen.lines[1:4] == [
        "WAITS pod: its pod was created",
        "WAITS pod: no node has room",
        "READY pod: after 0 s",
    ]
    assert [one["pod"]["reason"] for one in seen] == ["its pod was created", "no node has room", "no node has room"]
    assert schedule.read(str(tmp_path / "runs"))["waiting"] == {}


def test_what_is_not_there_in_time_ends_the_wait_too(tmp_path, machine):
    tries = []

    def waits(tell):
        tell("no node has room")
        tries.append(1)
        if len(tries) == 1:
            raise TransportError("not ready within 8 s: no node has room")

    told = sweep(tmp_path / "runs", machine, waits)
    kinds = [(event["kind"], event.get("ready")) for event in told.events if "wait" in event["kind"]]
    assert kinds == [("waiting", None), ("waited", False), ("waiting", None), ("waited", True)]
    assert set(told.done.values()) == {"ok"}
    assert told.screen.board.row("pod").waits == ""


def test_it_is_over_for_the_first_who_has_it_and_for_the_last_who_has_not():
    async def body():
        waiting, told = Waiting(), []
        waiting.told = lambda one: told.append(one.reason)
        waiting.because("nobody asks")
        assert told == []

        async def have(has_it, may_end):
            try:
                with waiting.trying():
                    waiting.because("no room")
                    await may_end.wait()
                    if not has_it:
                        raise TransportError("not in time")
            except TransportError:
                pass

        for ends in ((False, False), (False, True), (True, True)):
            told.clear()
            doors = [asyncio.Event(), asyncio.Event()]
            tries = [asyncio.create_task(have(end, door)) for end, door in zip(ends, doors, strict=True)]
            await asyncio.sleep(0)
            doors[0].set()
            await tries[0]
            assert (waiting.reason is None) is ends[0]
            doors[1].set()
            await tries[1]
            assert told == ["no room", None]

    asyncio.run(body())


def test_a_reason_of_an_earlier_try_is_not_told_of_the_next_one():
    waiting = Waiting()

    async def body():
        with waiting.trying():
            waiting.because("its pod was created")
        assert waiting.last == "its pod was created"
        with waiting.trying():
            assert waiting.last == ""

    asyncio.run(body())
