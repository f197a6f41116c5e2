"""A front in a scope of systemd: what is started over a real SSH session, and what is said when that fails.

``systemd-run`` is a stand-in on the far PATH: no systemd runs where these tests do.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import PATIENCE_S, Sshd, needs_sshd
from sidewinder import transports
from sidewinder.errors import DeviceFault
from sidewinder.model import Device, RawResult, Task
from sidewinder.transports.client import AgentClient
from sidewinder.transports.ssh import far_command

# As the real one with --scope: what stands behind `--` takes its place, with its descriptors.
STAND_IN = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; done > {log}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
REFUSES = """#!/bin/sh
echo 'Failed to connect to bus: No medium found' >&2
exit 1
"""


def test_the_far_command_in_a_scope() -> None:
    command = far_command(Device("d", "ssh", python="~/venv/bin/python", settings={"scope": "systemd"}))
    assert command.startswith("exec systemd-run --user --scope -q -- ~/venv/bin/python -I -S -u -c '")


@pytest.mark.parametrize("settings", [{}, {"scope": "auto"}, {"scope": "never"}])
def test_it_is_plain_python_otherwise(settings: dict[str, Any]) -> None:
    assert far_command(Device("d", "ssh", settings=settings)).startswith("exec python3 -I")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[str | None], Sshd]]:
    """A server on whose PATH are ``python3``, what a shell needs, and this ``systemd-run`` or none."""
    started = []

    def start(systemd_run: str | None) -> Sshd:
        tools = tmp_path / "bin"
        tools.mkdir()
        for name in ("python3", "sh", "echo"):
            (tools / name).symlink_to(shutil.which(name) or name)
        if systemd_run is not None:
            tool = tools / "systemd-run"
            tool.write_text(systemd_run)
            tool.chmod(0o755)
        folder = tmp_path / "server"
        env = f"HOME={folder / 'home'} XDG_CACHE_HOME={folder / 'cache'} PATH={tools}"
        started.append(Sshd(folder, options=[f"SetEnv {env}"]).start())
        return started[-1]

    yield start
    for one in started:
        one.stop()


def measure(device: Device, task: Task) -> RawResult:
    async def body() -> RawResult:
        transport = transports.open(device)
        client = AgentClient(transport, campaign="campaign", client_id="controller")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await client.connect()
                await client.start("run", 1, task)
                await client.wait("run", 1)
                return await client.fetch("run", 1)
        finally:
            await client.close()
            await transport.close()

    return asyncio.run(body())


@needs_sshd
def test_the_front_and_its_runs_are_started_through_it(server: Callable[..., Sshd], tmp_path: Path) -> None:
    log = tmp_path / "argv"
    one = server(STAND_IN.format(log=log))
    raw = measure(one.device(scope="systemd"), Task(("/bin/sh", "-c", "echo ran")))
    assert (raw.state, raw.stdout.head) == ("done", b"ran\n")
    argv = log.read_text().splitlines()
    assert argv[:8] == ["--user", "--scope", "-q", "--", "python3", "-I", "-S", "-u"]


@needs_sshd
@pytest.mark.parametrize("scope", ["auto", "never"])
def test_nobody_asks_for_one_otherwise(server: Callable[..., Sshd], tmp_path: Path, scope: str) -> None:
    log = tmp_path / "argv"
    one = server(STAND_IN.format(log=log))
    assert measure(one.device(scope=scope), Task(("/bin/true",))).state == "done"
    assert not log.exists()


@needs_sshd
@pytest.mark.parametrize(("systemd_run", "said"), [(None, "exit code 127"), (REFUSES, "No medium found")])
def test_a_scope_that_cannot_be_had_is_the_devices_fault(
    server: Callable[..., Sshd], systemd_run: str | None, said: str
) -> None:
    one = server(systemd_run)
    with pytest.raises(DeviceFault) as caught:
        measure(one.device(scope="systemd"), Task(("/bin/true",)))
    text = str(caught.value)
    assert text.startswith("device 'pi5': the agent did not start")
    assert said in text
    assert "devices.pi5.scope" in text
    assert "loginctl enable-linger" in text
