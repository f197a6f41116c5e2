"""The lives of a pod: what a watch keeps of them; a later one is used when the earlier ones are proven over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from sidewinder.transports import kubernetes_lives, kubernetes_watch
from sidewinder.transports.kubernetes_lives import Lives
from sidewinder.transports.kubernetes_watch import Seen, Watch

PATIENCE_S = 60.0
FIRST, SECOND = "u1/c1@2026-12-01T00:00:00Z", "u2/c2@2026-12-01T00:01:00Z"


def drive(body: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await body

    asyncio.run(bounded())


def pod(uid: str = "u1", version: int = 5, *, name: str = "p", **state: Any) -> dict[str, Any]:
    status = {"name": "agent", "containerID": f"containerd://c{uid[1:]}", "state": state, "lastState": {}}
    metadata = {"name": name, "uid": uid, "resourceVersion": str(version)}
    return {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"containerStatuses": [status]},
    }


def ended(uid: str = "u1", version: int = 6) -> dict[str, Any]:
    last = {"containerID": f"containerd://c{uid[1:]}", "exitCode": 1, "reason": "Error"}
    return pod(uid, version, terminated=last)


# -- what a watch keeps -----------------------------------------------------------------------------------------------


class Server:
    """As much of a cluster as a watch asks: a list, and lines that a test says."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.listed = self.watched = 0

    async def request(self, method: str, path: str, *, query: Any) -> Any:
        self.listed += 1
        return {"metadata": {"resourceVersion": "1"}, "items": self.items}

    async def watch(self, path: str, query: Any) -> AsyncIterator[Any]:
        self.watched += 1
        while (line := await self.lines.get()) is not None:
            yield line

    def says(self, kind: str, what: dict[str, Any]) -> None:
        self.lines.put_nowait({"type": kind, "object": what})


async def until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110 -- a condition of the code under test, which sets no event
        await asyncio.sleep(0.005)


def test_a_watch_keeps_the_last_of_each_life_until_its_device_leaves() -> None:
    async def body() -> None:
        server = Server()
        server.items = [pod(version=3), pod("u9", name="another")]
        watch = Watch(server, "lab")  # type: ignore[arg-type]
        watch.attend("p")
        await until(lambda: watch.last("p", "u1"))
        server.says("MODIFIED", ended())
        server.says("DELETED", ended(version=7))
        server.says("ADDED", pod("u2", 8))
        await until(lambda: watch.last("p", "u2"))
        assert watch.last("p", "u1") == Seen(ended(version=7), is_gone=True, is_last=True)
        assert watch.last("p", "u2") == Seen(pod("u2", 8))
        assert watch.last("another", "u9") is None, "nobody's here"
        assert (server.listed, server.watched) == (1, 1)
        await watch.leave("p")
        assert watch.last("p", "u1") is None

    drive(body())


def test_a_watch_that_begins_anew_sees_who_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "PAUSE_S", 0.01)

    async def body() -> None:
        server = Server()
        server.items = [pod()]
        watch = Watch(server, "lab")  # type: ignore[arg-type]
        watch.attend("p")
        await until(lambda: watch.last("p", "u1"))
        server.items = []
        server.says("ERROR", {"code": 410})
        await until(lambda: server.listed == 2)
        await until(lambda: server.watched == 2)
        assert watch.last("p", "u1") == Seen(pod(), is_gone=True), "how it went nobody said"
        await watch.leave("p")

    drive(body())


def test_what_is_older_than_what_is_known_is_passed_over() -> None:
    async def body() -> None:
        watch = Watch(Server(), "lab")  # type: ignore[arg-type]
        watch.attend("p")
        watch.saw(ended(version=9))
        watch.saw(pod(version=8))  # the answer to a request that was sent before
        assert watch.last("p", "u1") == Seen(ended(version=9))
        watch.missing("p")
        assert watch.last("p", "u1") == Seen(ended(version=9), is_gone=True)
        watch.saw(ended(version=10), is_gone=True)  # a watch tells of the end later than a 404
        watch.saw(pod(version=11))
        assert watch.last("p", "u1") == Seen(ended(version=10), is_gone=True, is_last=True)
        for n in range(2, 9):
            watch.saw(pod(f"u{n}", 10 + n))
        assert watch.last("p", "u1") is None, "no more than a few are kept"
        seen = watch.last("p", "u7")
        assert seen is not None
        assert seen.is_gone, "one name, one pod"
        await watch.leave("p")

    drive(body())


# -- until they are over ----------------------------------------------------------------------------------------------


class Pod:
    """A pod's life as ``Lives`` asks it: what is seen of each uid, and what a person is told."""

    name, container = "p", "agent"

    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.looks = 0
        self.on_look: Any = lambda _: None
        self.said: list[str] = []

    async def last_seen(self, uid: str) -> Seen | None:
        self.looks += 1
        self.on_look(self.looks)
        return self.seen.get(uid)

    async def changed(self, limit_s: float) -> None:
        await asyncio.sleep(0)

    def say(self, why: str) -> None:
        self.said.append(why)


def channel(*, ended_s: float | None = None, was_killed: bool = False) -> Any:
    return SimpleNamespace(began_s=0.0, ended_s=ended_s, was_killed=was_killed)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_lives, "LOOK_S", 0.01)


def test_the_only_life_is_used_at_once() -> None:
    async def body() -> None:
        lives, there = Lives(), Pod()
        await lives.until_over(there, FIRST)  # type: ignore[arg-type]
        lives.entered(FIRST, channel())
        await lives.until_over(there, FIRST)  # type: ignore[arg-type]
        assert there.looks == 0
        assert await lives.death_of(there, FIRST) is None  # type: ignore[arg-type]
        assert await lives.death_of(there, "nobody/was@there") is None  # type: ignore[arg-type]

    drive(body())


def test_a_later_life_is_used_when_the_kubelet_has_reported_the_end_of_the_earlier_one() -> None:
    """However long that takes; meanwhile it is said why."""

    async def body() -> None:
        lives, there = Lives(), Pod()
        now_s = asyncio.get_running_loop().time()
        lives.entered(FIRST, channel(ended_s=now_s))
        there.seen["u1"] = Seen(pod(), is_gone=True)

        def look(times: int) -> None:
            if times == 5:
                there.seen["u1"] = Seen(ended(), is_gone=True, is_last=True)

        there.on_look = look
        await lives.until_over(there, SECOND)  # type: ignore[arg-type]
        assert there.looks == 5
        assert "nothing proves yet" in there.said[0]
        death = await lives.death_of(there, FIRST)  # type: ignore[arg-type]
        assert death is not None
        assert death.evidence["proof"] == "container"
        assert there.looks == 5, "it is remembered"

    drive(body())


def test_a_node_that_is_cut_off_is_waited_for_as_long_as_a_run_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_lives, "OUTLIVES_S", 0.3)

    async def body() -> None:
        lives, there = Lives(), Pod()
        began_s = asyncio.get_running_loop().time()
        lives.entered(FIRST, channel(ended_s=began_s))
        there.seen["u1"] = Seen(pod(), is_gone=True)
        await lives.until_over(there, SECOND)  # type: ignore[arg-type]
        assert asyncio.get_running_loop().time() - began_s >= 0.3, "not a moment sooner"
        death = await lives.death_of(there, FIRST)  # type: ignore[arg-type]
        assert death is not None
        assert (death.evidence["cause"], death.evidence["proof"]) == ("deleted", "lease")

    drive(body())


def test_a_front_that_was_killed_is_looked_after_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status of its pod tells a moment later than the stream breaks; but a front may also die alone."""

    async def body() -> None:
        lives, there = Lives(), Pod()
        running = Seen(pod(running={"startedAt": "2026-12-01T00:00:00Z"}))
        there.seen["u1"] = running
        lives.entered(FIRST, channel(was_killed=True))

        def look(times: int) -> None:
            if times == 4:
                there.seen["u1"] = Seen(ended())

        there.on_look = look
        assert await lives.death_of(there, FIRST) is not None  # type: ignore[arg-type]
        assert there.looks == 4

        monkeypatch.setattr(kubernetes_lives, "TOLD_LATE_S", 0.0)
        there.seen["u2"], there.on_look = Seen(pod("u2")), lambda _: None
        lives.entered(SECOND, channel(was_killed=True))
        assert await lives.death_of(there, SECOND) is None  # type: ignore[arg-type]

    drive(body())


def test_a_pod_that_is_still_there_is_not_over_by_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container may run: the run in it ended itself, and is asked for."""
    monkeypatch.setattr(kubernetes_lives, "OUTLIVES_S", 0.0)

    async def body() -> None:
        lives, there = Lives(), Pod()
        lives.entered(FIRST, channel(ended_s=0.0))
        there.seen["u1"] = Seen(pod(running={"startedAt": "2026-12-01T00:00:00Z"}))
        assert await lives.death_of(there, FIRST) is None  # type: ignore[arg-type]

    drive(body())


def test_a_life_of_an_earlier_controller_is_waited_for_from_now_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know when that one spoke last."""
    monkeypatch.setattr(kubernetes_lives, "OUTLIVES_S", 0.3)

    async def body() -> None:
        lives, there = Lives(), Pod()
        began_s = asyncio.get_running_loop().time()
        lives.ran_in(FIRST)
        await lives.until_over(there, SECOND)  # type: ignore[arg-type]
        assert asyncio.get_running_loop().time() - began_s >= 0.3
        death = await lives.death_of(there, FIRST)  # type: ignore[arg-type]
        assert death is not None
        assert (death.evidence["cause"], death.evidence["proof"]) == ("vanished", "lease")

    drive(body())


def test_a_life_in_which_a_front_is_has_not_been_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier controller's life that this one is in now: what counts is its own link."""
    monkeypatch.setattr(kubernetes_lives, "OUTLIVES_S", 1e-9)

    async def body() -> None:
        lives, there = Lives(), Pod()
        lives.ran_in(FIRST)
        there.seen["u1"] = Seen(pod(), is_gone=True)
        lives.entered(FIRST, channel())
        assert await lives.death_of(there, FIRST) is None  # type: ignore[arg-type]

    drive(body())
