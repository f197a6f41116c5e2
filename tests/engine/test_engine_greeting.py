"""Who is called before the first run, and what is told of those who answer late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sidewinder.engine import greeting
from sidewinder.engine.greeting import Greeting
from sidewinder.errors import TransportError
from sidewinder.model import Device

PATIENCE_S = 30.0


class Link:
    """A device that answers when it is let to, and shows ``boot``."""

    def __init__(
        self, boot: str, *, answers: bool = True, dead: bool = False, there: bool = True, **facts: Any
    ) -> None:
        self.facts = {"boot_id": boot, **facts}
        self.there = there
        self.met: Any = None
        self.called = 0
        self.dead = dead
        self.answers = asyncio.Event()
        if answers:
            self.answers.set()

    async def is_there(self) -> bool:
        if self.dead:
            raise TransportError("nobody can be asked")
        return self.there

    @asynccontextmanager
    async def client(self) -> AsyncIterator[None]:
        self.called += 1
        if self.dead:
            raise TransportError("nobody is there")
        await self.answers.wait()
        self.met()
        yield None


class Party:
    def __init__(self, **links: Link) -> None:
        self.told: list[str] = []
        self.links = links
        self.said = asyncio.Event()
        self.greeting = Greeting(self._tell)

    def _tell(self, text: str) -> None:
        self.told.append(text)
        self.said.set()

    def know(self, name: str, *, kind: str = "ssh", group: str | None = None, is_well: bool = True) -> None:
        device = Device(f"0:{name}", kind, resource_group=group or name)
        self.greeting.know(device, self.links[name], is_well=is_well)  # type: ignore[arg-type]

    def expect(self, *names: str) -> None:
        for name in names:
            self.greeting.expect(f"0:{name}")


def test_who_is_one_machine_is_told_before_the_first_start() -> None:
    async def body() -> Party:
        party = Party(a=Link("x"), b=Link("x"), c=Link("y"), d=Link("", dead=True))
        for name in "abcd":
            party.know(name)
        party.expect(*"aabcd")
        await party.greeting.over()
        await party.greeting.over()
        await party.greeting.close()
        return party

    party = asyncio.run(body())
    (said,) = party.told
    assert "a and b show one boot id" in said
    assert [link.called for link in party.links.values()] == [1, 1, 1, 0]


@pytest.mark.parametrize("how", ["a pod to be made", "down", "one group", "nothing to run"])
def test_who_is_not_called(how: str) -> None:
    async def body() -> list[int]:
        party = Party(a=Link("x"), b=Link("x", there=how != "a pod to be made"), c=Link("z"))
        group = "g" if how == "one group" else None
        party.know("a", group=group)
        party.know("b", group=group, is_well=how != "down")
        party.know("c", group=group)
        party.expect("a", "c")
        if how != "nothing to run":
            party.expect("b")
        await party.greeting.over()
        await party.greeting.close()
        assert not party.told
        return [link.called for link in party.links.values()]

    assert asyncio.run(body()) == ([0, 0, 0] if how == "one group" else [1, 0, 1])


def test_a_pod_that_is_there_is_called_and_one_that_has_to_be_made_is_told_of_when_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greeting, "LATE_S", 0.05)

    async def body() -> Party:
        on = {"pod": {"node": "node1"}}
        party = Party(host=Link("x"), old=Link("x", **on), new=Link("x", there=False, **on))
        for name in party.links:
            party.know(name, kind="ssh" if name == "host" else "kubernetes")
        party.expect("host", "old", "new")
        await party.greeting.over()
        assert len(party.told) == 1
        party.said.clear()
        async with party.links["new"].client():  # it has been made
            pass
        await asyncio.wait_for(party.said.wait(), PATIENCE_S)
        await party.greeting.close()
        return party

    party = asyncio.run(body())
    assert "host and old (a pod on node1) show one boot id" in party.told[0]
    assert "host, old (a pod on node1) and new (a pod on node1) show one boot id" in party.told[1]
    assert "they share the machine of node1" in party.told[1]


def test_who_answers_late_is_told_of_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for them longer than that, and many who come one by one are not many warnings."""
    monkeypatch.setattr(greeting, "GREET_S", 0.05)
    monkeypatch.setattr(greeting, "LATE_S", 0.2)

    async def body() -> Party:
        party = Party(a=Link("x"), **{name: Link("x", answers=False) for name in "bcd"})
        for name in "abcd":
            party.know(name)
        party.expect(*"abcd")
        await party.greeting.over()
        assert not party.told
        for name in "bcd":  # each when it starts its own first run
            party.links[name].answers.set()
            async with party.links[name].client():
                pass
        await asyncio.wait_for(party.said.wait(), PATIENCE_S)
        await party.greeting.close()
        return party

    (said,) = asyncio.run(body()).told
    assert "a, b, c and d show" in said


def test_what_is_late_is_told_at_the_end_at_last() -> None:
    async def body() -> Party:
        party = Party(a=Link("x"), b=Link("x"))
        party.know("a", is_well=False)
        party.know("b", is_well=False)
        for link in party.links.values():
            link.met()
        await party.greeting.close()
        return party

    assert len(asyncio.run(body()).told) == 1
