"""What an account may do, asked of servers that do not say, or that ask for less than today's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from sidewinder import cli
from sidewinder.errors import DeviceFault
from sidewinder.model import Device
from sidewinder.transports.kubernetes_access import RIGHTS, missing
from sidewinder.transports.kubernetes_cluster import Cluster
from sidewinder.transports.kubernetes_pod import PodLife

Answers = dict[str, tuple[int, Any]]
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LOCAL = [right for right in RIGHTS if not right.everywhere]


def asking(answers: Answers, folder: Path, ask: Any) -> Any:
    """What ``ask(kubeconfig)`` returns beside a server that answers each path so, and all others with 403."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        status, body = answers.get(request.path, (403, {"message": "pods is forbidden"}))
        if callable(body):
            body = body((await request.json())["spec"]["resourceAttributes"])
        return web.json_response(body, status=status)

    async def body() -> Any:
        runner = web.ServerRunner(web.Server(handle), handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))
        try:
            return await ask(str(folder / "kubeconfig"))
        finally:
            await runner.cleanup()

    return asyncio.run(body())


def only_get(attributes: dict[str, str]) -> dict[str, Any]:
    """A review's answer of a Role that knows no ``create`` of pods/exec."""
    is_missing = attributes["subresource"] == "exec" and attributes["verb"] == "create"
    return {"status": {"allowed": not is_missing}}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ((200, {"major": "1", "minor": "34"}), []),
        ((200, {"major": "1", "minor": "34+"}), []),
        ((200, {"major": "1", "minor": "35"}), ["create pods/exec"]),
        ((403, {}), ["create pods/exec"]),
        ((200, {"major": "one"}), ["create pods/exec"]),
    ],
)
def test_an_older_server_asks_for_less(version: tuple[int, Any], names: list[str], tmp_path: Path) -> None:
    async def ask(kubeconfig: str) -> list[str]:
        cluster = Cluster(kubeconfig, None)
        try:
            found = await missing(cluster, "lab", LOCAL)
            assert found is not None
            return [str(right) for right in found]
        finally:
            await cluster.close()

    assert asking({REVIEW: (200, only_get), "/version": version}, tmp_path, ask) == names


def test_who_may_not_even_ask_is_told_so(tmp_path: Path) -> None:
    """Unknown is no "yes": nothing is said of rights that could not be asked about."""

    async def ask(kubeconfig: str) -> str:
        cluster = Cluster(kubeconfig, None)
        try:
            assert await missing(cluster, "lab", LOCAL) is None
            with pytest.raises(DeviceFault) as caught:
                await PodLife(Device("k8s", "kubernetes", settings={"image": "i"}), cluster).ensure()
            return str(caught.value)
        finally:
            await cluster.close()

    told = asking({}, tmp_path, ask)
    assert "forbidden. The Role that is needed is printed by: sidewinder devices role" in told
    assert "lacks" not in told


def test_doctor_says_that_it_could_not_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def ask(kubeconfig: str) -> int:
        device = {"kind": "kubernetes", "image": "i", "kubeconfig": kubeconfig}
        block = {"devices": ["k8s"], "backend": "command", "command": ["true"]}
        lab = {"output_dir": str(tmp_path / "runs"), "devices": {"k8s": device}, "matrix": [block]}
        (tmp_path / "lab.yaml").write_text(yaml.safe_dump(lab))
        return await asyncio.to_thread(cli.main, ["doctor", "--configfile", str(tmp_path / "lab.yaml")])

    assert asking({}, tmp_path, ask) == 1
    told = capsys.readouterr().out
    assert "warn  k8s: rights: the cluster does not tell what this account may do in namespace lab" in told
    assert "fail  k8s: not reached" in told
