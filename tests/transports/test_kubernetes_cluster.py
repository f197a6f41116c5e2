"""What a healthy API server never does: it is overloaded, forgets, talks nonsense, falls silent. How it is reached."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import WSMsgType, web

from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import Device
from sidewinder.transports import kubernetes_channel, kubernetes_cluster, kubernetes_exec, kubernetes_watch
from sidewinder.transports.kubernetes_channel import PodChannel
from sidewinder.transports.kubernetes_cluster import Cluster
from sidewinder.transports.kubernetes_errors import Refused, Silent
from sidewinder.transports.kubernetes_pod import PodLife
from sidewinder.transports.kubernetes_verdict import Container

PATIENCE_S = 60.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers every request by ``handler``; what was asked is kept."""

    def __init__(self, handler: Handler, folder: Path) -> None:
        self._handler, self._folder = handler, folder
        self.asked: list[web.Request] = []
        self.at_s: list[float] = []
        self.port = 0

    async def __aenter__(self) -> Server:
        self._runner = web.ServerRunner(web.Server(self._serve), handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request)  # type: ignore[arg-type]
        self.at_s.append(time.monotonic())
        return await self._handler(request)  # type: ignore[arg-type]

    def kubeconfig(self, user: dict[str, Any] | None = None, **cluster: str) -> str:
        found = {"server": f"http://127.0.0.1:{self.port}", **cluster}
        text = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": found}],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
        }
        path = self._folder / "kubeconfig"
        path.write_text(yaml.safe_dump(text))
        return str(path)


@contextlib.asynccontextmanager
async def serving(folder: Path, handler: Handler, **options: Any) -> AsyncIterator[tuple[Server, Cluster]]:
    async with Server(handler, folder) as server:
        cluster = Cluster(server.kubeconfig(**options), None)
        try:
            yield server, cluster
        finally:
            await cluster.close()


def script(*answers: web.Response | str) -> Handler:
    """One answer after the other, the last one again and again."""
    left = list(answers)

    async def handle(_: web.Request) -> web.StreamResponse:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        return web.Response(text=answer)

    return handle


def drive(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await body()

    asyncio.run(bounded())


def status(code: int, **headers: str) -> web.Response:
    return web.json_response({"message": "no", "reason": "R"}, status=code, headers=headers)


def test_who_is_told_to_wait_waits(tmp_path: Path) -> None:
    async def body() -> None:
        answers = script(status(429, **{"Retry-After": "1"}), status(503), "{}")
        async with serving(tmp_path, answers) as (server, cluster):
            assert await cluster.request("GET", "/x") == {}
            assert len(server.asked) == 3
            assert server.at_s[1] - server.at_s[0] >= 1, "as long as it wished"

    drive(body)


def test_a_server_that_goes_on_failing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_cluster, "PAUSES_S", (0.01, 0.01))

    async def body() -> None:
        async with serving(tmp_path, script(status(500))) as (server, cluster):
            with pytest.raises(Refused, match="500 R: no"):
                await cluster.request("GET", "/x")
            assert len(server.asked) == 3
        async with serving(tmp_path, script(status(404))) as (server, cluster):
            with pytest.raises(Refused):
                await cluster.request("GET", "/x")
            assert len(server.asked) == 1, "an answer is an answer"

    drive(body)


def test_nonsense_is_no_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path, script("<html>captive portal</html>")) as (_, cluster):
            with pytest.raises(TransportError, match="no JSON"):
                await cluster.request("GET", "/x")

    drive(body)


def test_a_token_that_ran_out_is_had_anew(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") == "Bearer new":
            return web.Response(text="{}")
        token.write_text("new")
        return status(401)

    async def body() -> None:
        async with serving(tmp_path, handle, user={"tokenFile": str(token)}) as (server, cluster):
            assert await cluster.request("GET", "/x") == {}
            assert len(server.asked) == 2
        async with serving(tmp_path, script(status(401))) as (server, cluster):
            with pytest.raises(Refused, match="401"):
                await cluster.request("GET", "/x")
            assert len(server.asked) == 2, "once anew, not for ever"

    drive(body)


def test_a_token_that_ran_out_costs_the_others_nothing(tmp_path: Path) -> None:
    """Many devices share the login: their requests go on, and the streams that are open stay so."""
    many = 20
    token = tmp_path / "token"
    token.write_text("old")
    waiting: list[asyncio.Event] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
            await socket.prepare(request)
            async for message in socket:
                await socket.send_bytes(message.data)
            return socket
        if request.headers.get("authorization") == "Bearer new":
            await asyncio.sleep(0)  # it takes its time, while others hear of the end of the old one
            return web.Response(text="{}")
        token.write_text("new")
        waiting.append(asyncio.Event())
        if len(waiting) == many:
            for one in waiting:
                one.set()
        await waiting[-1].wait()
        return status(401)

    async def body() -> None:
        async with serving(tmp_path, handle, user={"tokenFile": str(token)}) as (_, cluster):
            stream = await cluster.stream("/api/v1/namespaces/lab/pods/p/exec", {})
            assert (
                await asyncio.gather(*(cluster.request("GET", f"/{number}") for number in range(many))) == [{}] * many
            )
            await stream.send_bytes(b"still there?")
            assert (await stream.receive()).data == b"still there?"
            await stream.close()

    drive(body)


def test_a_watch_whose_token_ran_out_goes_on_with_a_new_one(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.headers.get("authorization") == "Bearer new":
            return web.Response(text='{"type": "BOOKMARK"}\n')
        token.write_text("new")
        return status(401)

    async def body() -> None:
        async with serving(tmp_path, handle, user={"tokenFile": str(token)}) as (_, cluster):
            with pytest.raises(Refused, match="401"):
                _ = [line async for line in cluster.watch("/x", {})]
            assert [line async for line in cluster.watch("/x", {})] == [{"type": "BOOKMARK"}]

    drive(body)


def plugin(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "plugin.py"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


def test_a_credential_plugin_is_asked(tmp_path: Path) -> None:
    said = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}

    async def body() -> None:
        user = plugin(tmp_path, f"print({json.dumps(said)!r})")
        async with serving(tmp_path, script("{}"), user=user) as (server, cluster):
            await cluster.request("GET", "/x")
            assert server.asked[0].headers["authorization"] == "Bearer made"
        user = plugin(tmp_path, "raise SystemExit('please log in')")
        async with serving(tmp_path, script("{}"), user=user) as (server, cluster):
            with pytest.raises(TransportError, match="please log in"):
                await cluster.request("GET", "/x")
            assert not server.asked

    drive(body)


def test_a_proxy_of_the_kubeconfig_is_used(tmp_path: Path) -> None:
    async def body() -> None:
        async with Server(script("{}"), tmp_path) as proxy:
            there = {"server": "http://cluster.invalid:99", "proxy-url": f"http://127.0.0.1:{proxy.port}"}
            cluster = Cluster(proxy.kubeconfig(**there), None)
            await cluster.request("GET", "/x")
            await cluster.close()
            assert str(proxy.asked[0].url) == "http://cluster.invalid:99/x"

    drive(body)


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        (None, None, "no such kubeconfig"),
        ("{", None, "cannot be used"),
        ("just text", None, "cannot be used"),
        ("{}", None, "no current context"),
        ("good", "other", "other"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used(text: str | None, context: str | None, words: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with Server(script("{}"), tmp_path) as server:
            path = server.kubeconfig()
            if text is None:
                os.unlink(path)
            elif text != "good":
                Path(path).write_text(text)  # noqa: ASYNC240  # nothing else runs in this loop
            with pytest.raises(ConfigError, match=words):
                await Cluster(path, context).request("GET", "/x")

    drive(body)


def test_a_watch_goes_on_where_it_was_and_begins_anew_where_that_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_watch, "PAUSE_S", 0.01)

    def line(kind: str, version: str, name: str = "p") -> str:
        return json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}) + "\n"

    listed = json.dumps({"metadata": {"resourceVersion": "5"}, "items": []})
    gone = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}}) + "\n"
    answers = script(
        listed,
        line("MODIFIED", "6") + line("BOOKMARK", "8"),
        status(500),
        gone,
        listed,
        status(410),
        listed,
        line("ADDED", "9", "other"),
        line("DELETED", "10"),
    )

    async def body() -> None:
        async with serving(tmp_path, answers) as (server, cluster):
            async with kubernetes_watch.watch_of(cluster, "lab").waiting() as watch:
                while len(server.asked) < 9:
                    await watch.change("p", 0.05)
                await watch.change("p", PATIENCE_S)  # the pod was deleted: told, not waited for
            versions = [request.query.get("resourceVersion") for request in server.asked[:9]]
            assert versions == [None, "5", "8", "8", None, "5", None, "5", "9"]
            assert {request.query["labelSelector"] for request in server.asked} == {
                "app.kubernetes.io/managed-by=sidewinder"
            }

    drive(body)


@pytest.mark.parametrize("is_again", [True, False], ids=["again", "first"])
def test_a_link_that_is_back_is_found_by_a_fresh_call(
    is_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_cluster, "TRY_S", 0.2)
    if not is_again:
        monkeypatch.setattr(kubernetes_cluster, "HANDSHAKE_S", 1.0)
    asked: list[int] = []
    is_over = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(len(asked))
        if asked[-1] < 3:
            await is_over.wait()  # packets that went into a cut cable
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        await socket.send_bytes(b"\x01hello")
        async for _ in socket:
            pass
        return socket

    async def body() -> None:
        async with serving(tmp_path, handle) as (_, cluster):
            if is_again:
                stream = await kubernetes_exec.start(cluster, "/p", "agent", ["x"], is_again=True)
                assert await stream.read() == b"hello"
                await stream.close()
                assert len(asked) >= 4, "one call that waits, those that were given up, and the one that arrived"
            else:
                with pytest.raises(Silent):
                    await kubernetes_exec.start(cluster, "/p", "agent", ["x"])
                assert len(asked) == 1, "a busy cluster is not asked twice"
            is_over.set()

    drive(body)


def test_a_pod_that_was_ready_is_called_as_long_as_its_container_runs(tmp_path: Path) -> None:
    def pod(container: str, ready: str, **metadata: str) -> dict[str, Any]:
        running = {"name": "agent", "containerID": container, "state": {"running": {"startedAt": "then"}}}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [running],
        }
        spec = {"nodeName": "n", "containers": [{"name": "agent"}]}
        return {"metadata": {"name": "p", "uid": "u", **metadata}, "spec": spec, "status": status}

    life = PodLife(Device("k8s", "kubernetes", settings={"image": "i"}), Cluster("none", None))
    assert life.ready(pod("one", "False")) is None
    assert life.ready(pod("one", "True")) is not None
    assert life.ready(pod("one", "False")) is not None, "its node was not heard of: whether the call arrives says more"
    assert life.ready(pod("two", "False")) is None, "a new life begins anew"
    assert life.ready(pod("one", "False", deletionTimestamp="now")) is None


@pytest.mark.parametrize("way", ["silent", "busy", "full"])
def test_a_front_that_falls_silent_is_noticed(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_channel, "PING_S", 0.1)
    monkeypatch.setattr(kubernetes_channel, "SILENT_S", 1.0)
    heard: list[bytes] = []
    is_over = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/exec"):
            return status(404)  # what became of the pod? it was deleted
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        await socket.send_bytes(b"\x01hello")
        if way == "full":
            await is_over.wait()  # reads nothing at all
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                heard.append(message.data)
        return socket

    async def chatter(channel: PodChannel) -> None:
        while True:
            await channel.write(b"hb")
            await asyncio.sleep(0.05)

    async def body() -> None:
        async with serving(tmp_path, handle) as (_, cluster):
            life = PodLife(Device("k8s", "kubernetes", settings={"image": "i", "namespace": "lab"}), cluster)
            stream = await kubernetes_exec.start(cluster, await life.path("/p"), "agent", ["x"])
            channel = PodChannel(stream, life, Container("p", "u", "n", "containerd://1", "now", 0))
            assert await channel.read() == b"hello"
            if way == "full":
                writing = asyncio.create_task(channel.write(b"x" * 64_000_000))
            elif way == "busy":  # as heartbeats do: the server takes them while the node is cut off
                writing = asyncio.create_task(chatter(channel))
            with pytest.raises(TransportError, match=r"'k8s'.*nothing was heard of the container.*the pod was deleted"):
                await channel.read()
            is_over.set()
            await channel.close()
            if way != "silent":
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)
            else:
                assert heard
                assert all(b'"op":"ping"' in one.replace(b" ", b"") for one in heard if one[:1] == b"\0")

    drive(body)
