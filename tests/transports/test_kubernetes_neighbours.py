"""The other pods of a node: who counts, how much CPU they were promised, and how seldom the API server is asked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidewinder.transports import kubernetes_neighbours
from sidewinder.transports.kubernetes_errors import Refused
from sidewinder.transports.kubernetes_neighbours import others


class Server:
    """Answers with these pods, or refuses, and counts."""

    def __init__(self, pods: list[dict[str, Any]], refuses: Exception | None = None) -> None:
        self.pods, self.refuses, self.asked = pods, refuses, 0

    async def request(self, method: str, path: str, *, query: dict[str, str]) -> Any:
        assert (method, path) == ("GET", "/api/v1/pods")
        assert query["fieldSelector"] == "spec.nodeName=node1"
        self.asked += 1
        await asyncio.sleep(0)
        if self.refuses is not None:
            raise self.refuses
        return {"items": self.pods}


def pod(uid: str, *requests: str | None, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "resources": {"requests": {"cpu": r}} if r else {}} for i, r in enumerate(requests)]
    return {"metadata": {"uid": uid}, "spec": {"containers": containers, **spec}, "status": {"phase": phase}}


def counted(server: Any, uid: str = "me") -> dict[str, Any]:
    return asyncio.run(others(server, "node1", uid))


def test_those_that_run_or_are_to_run_beside_it_with_what_they_asked_for() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}}
    first = {"name": "i", "resources": {"requests": {"cpu": "8"}}}  # over before the others start
    server = Server(
        [
            pod("me", "4"),
            pod("a", "500m", "0.25"),
            pod("b", None, phase="Pending"),
            pod("c", "100m", initContainers=[sidecar, first], overhead={"cpu": "10m"}),
            pod("d", "100m", "100m", resources={"requests": {"cpu": "1"}}),
            pod("e", "2", phase="Succeeded"),
            pod("f", "2", phase="Failed"),
            pod("g", "not an amount"),
        ]
    )
    found = counted(server)
    assert found.pop("counted_utc").endswith("+00:00")
    assert found == {"pods": 5, "cpu_request_cores": 1.91}


def test_nobody_else_is_a_count_too() -> None:
    found = counted(Server([pod("me", "1")]))
    assert (found["pods"], found["cpu_request_cores"]) == (0, 0)


def test_devices_that_connect_together_share_one_look() -> None:
    server = Server([pod("me", "1"), pod("you", "2")])

    async def body() -> list[dict[str, Any]]:
        return [*await asyncio.gather(*(others(server, "node1", uid) for uid in ("me", "you", "me")))]  # type: ignore[arg-type]

    assert [one["cpu_request_cores"] for one in asyncio.run(body())] == [2, 1, 2]
    assert server.asked == 1


@pytest.mark.parametrize(
    ("error", "asked"),
    [(Refused(403), 1), (Refused(503), 3), (OSError("no route"), 3)],
    ids=["forbidden is remembered", "overloaded is not", "a broken link is not"],
)
def test_who_may_not_count_says_nothing(error: Exception, asked: int) -> None:
    server = Server([], error)

    async def body() -> list[dict[str, Any]]:
        return [await others(server, "node1", "me") for _ in range(3)]  # type: ignore[arg-type]

    assert asyncio.run(body()) == [{}, {}, {}]
    assert server.asked == asked


def test_an_old_look_is_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_neighbours, "FRESH_S", 0.0)
    server = Server([pod("me", "1")])

    async def body() -> None:
        for uid in ("me", "later"):
            server.pods.append(pod(f"beside {uid}", "1"))
            found = await others(server, "node1", "me")  # type: ignore[arg-type]
            assert found["pods"] == len(server.pods) - 1

    asyncio.run(body())
    assert server.asked == 2
