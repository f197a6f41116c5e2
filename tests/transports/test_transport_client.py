"""An agent client over the local transport and over channels that misbehave."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.helpers_agent import Bench, alive, drive, ended, front_pid, sh
from sidewinder.errors import DeviceFault, InternalError, TransportError
from sidewinder.model import Device, Task
from sidewinder.transports import client as client_module
from sidewinder.transports import open as open_transport
from sidewinder.transports.client import AgentClient
from sidewinder.transports.kubernetes import KubernetesTransport
from sidewinder.transports.local import LocalTransport
from sidewinder.transports.ssh import SshTransport

HOME = os.path.expanduser("~")


def test_looking_executing_and_digesting(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        file = tmp_path / "f"
        file.write_bytes(b"x" * 5000)
        found = await client.look([str(file), str(tmp_path), str(tmp_path / "no"), str(file / "below"), "~"])
        assert [seen.kind for seen in found] == ["file", "folder", "absent", "absent", "folder"]
        assert (found[0].size_bytes, found[0].executable) == (5000, False)
        assert found[0].mtime_ns == file.stat().st_mtime_ns
        assert found[4].real == HOME
        assert await client.digest(str(file)) == hashlib.sha256(b"x" * 5000).hexdigest()
        with pytest.raises(FileNotFoundError):
            await client.digest(str(tmp_path / "no"))
        out = await client.execute(["/bin/sh", "-c", "cat; echo $A >&2; exit 3"], b"in" * 50_000, env={"A": "b"})
        assert out == (3, b"in" * 50_000, b"b\n")
        with pytest.raises(FileNotFoundError, match="no-such-program"):
            await client.execute(["no-such-program"])
        with pytest.raises(TransportError, match=r"did not end within 0\.2 s"):
            await client.execute(["sleep", "1000"], timeout_s=0.2)
        offset = await client.clock(3)
        assert abs(offset.offset_s) <= offset.bound_s + 0.001

    drive(tmp_path / "state", body)


def test_slow_work_does_not_stop_the_front(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        slow = asyncio.create_task(client.execute(["sleep", "1000"], timeout_s=100))
        await client.start("r", 1, sh("exit 7"))
        assert (await ended(client, "r")).state == "finished"
        assert not slow.done()
        await client.close()
        with pytest.raises(TransportError, match="closed by us"):
            await slow

    drive(tmp_path, body)


def test_a_lost_channel_is_heard_by_all_who_wait(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("a", 1, sh("exec sleep 1000"), 0)
        await client.start("b", 1, sh("exec sleep 1000"), 1)
        waits = [asyncio.create_task(client.wait(name, 1)) for name in ("a", "b")]
        waits.append(asyncio.create_task(client.execute(["sleep", "1000"])))  # type: ignore[arg-type]
        await client.status("a", 1)
        os.kill(front_pid(client), signal.SIGKILL)
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert [type(result) for result in results] == [TransportError] * 3
        with pytest.raises(TransportError, match="no link"):
            await client.status("a", 1)
        await client.connect()
        assert (await client.status("a", 1)).state == "running"

    drive(tmp_path, body)


def test_a_front_that_hangs_is_noticed_by_its_missing_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "HEARTBEAT_PATIENCE_S", 0.3)

    async def body(bench: Bench) -> None:
        client = await bench.client(heartbeat_s=0.05)
        await client.start("r", 1, sh("exec sleep 1000"))
        wait = asyncio.create_task(client.wait("r", 1))
        await client.status("r", 1)
        os.kill(front_pid(client), signal.SIGSTOP)
        with pytest.raises(TransportError, match="no answer to 'hb'"):
            await wait
        assert not client.connected

    drive(tmp_path, body)


def test_two_may_wait_for_one_run_and_one_may_leave(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        go = tmp_path / "go"
        await client.start("r", 1, sh(f"while [ ! -e {go} ]; do sleep 0.01; done"))
        first, second = (asyncio.create_task(client.wait("r", 1)) for _ in range(2))
        await client.status("r", 1)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        go.touch()
        assert (await asyncio.wait_for(second, 20)).state == "finished"

    drive(tmp_path / "state", body)


def test_absent_and_inline(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert (await client.wait("r", 1)).state == "absent"
        with pytest.raises(InternalError, match="without a process"):
            await client.start("r", 1, Task((), inline={}))

    drive(tmp_path, body)


@pytest.mark.parametrize(
    ("python", "error", "text"),
    [
        ("/nowhere/python", DeviceFault, "no such interpreter: /nowhere/python"),
        ("/etc/passwd", DeviceFault, "cannot be executed"),
        ("/bin/false", DeviceFault, "exit code 1"),
        ("{dir}/says", DeviceFault, r"exit code 9.*no python on this box"),
        ("{dir}/killed", TransportError, "did not start"),
    ],
)
def test_an_agent_that_cannot_start(tmp_path: Path, python: str, error: type[Exception], text: str) -> None:
    for name, script in {"says": "echo motd; echo no python on this box >&2; exit 9", "killed": "kill -9 $$"}.items():
        file = tmp_path / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    async def body(bench: Bench) -> None:
        with pytest.raises(error, match=rf"(?s)'here'.*{text}"):
            await bench.client(python=python.format(dir=tmp_path))

    drive(tmp_path / "state", body)


def test_login_noise_is_skipped_and_kept(tmp_path: Path) -> None:  # T12
    noisy = tmp_path / "noisy"
    noisy.write_text(f'#!/bin/sh\nprintf "Welcome \\377 to the lab"\nexec {sys.executable} "$@"\n')
    noisy.chmod(0o755)

    async def body(bench: Bench) -> None:
        client = await bench.client(python=str(noisy))
        assert client.hello is not None
        assert client._session is not None
        assert bytes(client._session.frames.noise) == b"Welcome \xff to the lab"

    drive(tmp_path / "state", body)


def test_a_front_that_says_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "HELLO_S", 0.3)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec cat > /dev/null\n")
    silent.chmod(0o755)

    async def body(bench: Bench) -> None:
        with pytest.raises(TransportError, match=r"did not answer within 0\.3 s"):
            await bench.client(python=str(silent))

    drive(tmp_path / "state", body)


def test_a_state_folder_that_cannot_be_written_is_the_devices_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def body(bench: Bench) -> None:
        with pytest.raises((DeviceFault, TransportError), match="here"):
            await bench.client()

    drive(tmp_path / "file" / "state", body)


def test_the_front_has_a_session_of_its_own(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert os.getsid(front_pid(client)) == front_pid(client)  # Ctrl-C at our terminal does not reach it

    drive(tmp_path, body)


def test_closing_leaves_no_process(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        pid = front_pid(client)
        await client.close()
        assert not alive(pid)
        await client.close()

    drive(tmp_path, body)


def test_transports_by_kind() -> None:
    assert isinstance(open_transport(Device("here", "local")), LocalTransport)
    assert isinstance(open_transport(Device("pi5", "ssh", settings={"host": "pi5.lan"})), SshTransport)
    assert isinstance(open_transport(Device("pod", "kubernetes", settings={"image": "i"})), KubernetesTransport)
    with pytest.raises(DeviceFault, match="smoke"):
        open_transport(Device("far", "smoke"))


def test_facts_are_asked_once_per_boot(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert client.hello is not None
        facts = client.hello.facts
        await client.close()
        assert isinstance(client, AgentClient)
        assert (await client.connect()).facts is facts

    drive(tmp_path, body)


def test_a_device_that_is_not_the_one_asked_for_is_refused_when_it_is_met(tmp_path: Path) -> None:
    class Choosy(LocalTransport):
        def check(self, facts: Mapping[str, Any]) -> None:
            asked.append(facts["logical_cores"])
            raise DeviceFault("device 'here': asked are 1000 cores")

    asked: list[int] = []

    async def body() -> None:
        client = AgentClient(Choosy(Device("here", "local"), state_dir=str(tmp_path)), campaign="c", client_id="me")
        for _ in range(2):
            with pytest.raises(DeviceFault, match="1000 cores"):
                await client.connect()
        assert not client.connected
        assert asked == [os.cpu_count()] * 2, "asked again by the next try: it may be mended"

    asyncio.run(body())


def test_a_pod_whose_limits_do_not_hold_inside_is_refused() -> None:
    transport = KubernetesTransport(Device("k8s", "kubernetes", settings={"image": "i", "cpu": "500m"}))
    group = {"version": 2, "cpu_period_us": 100_000, "cpu_quota_us": 50_000, "unlimited": ["memory"]}
    transport.check({"placement": {"cgroup": group}})
    transport.check({})
    with pytest.raises(DeviceFault, match=r"'k8s'.*devices\.k8s\.cpu: asked is 500m, there is 0\.25 CPUs") as caught:
        transport.check({"placement": {"cgroup": {**group, "cpu_quota_us": 25_000}}})
    assert "sidewinder devices down k8s" in str(caught.value)
    with pytest.raises(DeviceFault, match=r"asked is 500m, there is no quota.*does its kubelet enforce quotas"):
        transport.check({"placement": {"cgroup": {"version": 2, "unlimited": ["cpu", "memory"]}}})
