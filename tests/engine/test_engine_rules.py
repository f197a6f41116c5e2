"""A user's own rule on another machine, through the engine: what a bad link, a lost run and a stop cost it.

The other machine is this one, behind an agent with a state folder of its own.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import Told, make_plan, noops
from sidewinder.engine import Engine, RuleFiles, session, shell_task
from sidewinder.errors import TransportError
from sidewinder.model import Device
from sidewinder.transports.client import AgentClient
from sidewinder.transports.local import LocalChannel, LocalTransport

BIG_BYTES = 900_000


class Far:
    """The engine, its one far device, and a hand on its clients."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.work, self.state = folder, folder / "work", folder / "far"
        self.work.mkdir()
        self.clients: list[AgentClient] = []
        self.before_call: Callable[[str, dict[str, Any]], Any] = lambda op, values: None
        self.told = Told()
        self.device = Device("pi5", "ssh", secrets=("TOKEN",), settings={"host": "pi5.test"})
        monkeypatch.setenv("TOKEN", "s3cret")
        monkeypatch.setattr(session, "agent_opener", lambda campaign, client_id: self._opener(campaign, client_id))
        self.engine = Engine(self.told)
        self.plan = make_plan(folder / "runs", noops(1, device="pi5"), devices=[self.device])
        self.engine.add_lab(str(folder / "runs"), self.plan)

    def _opener(self, campaign: str, client_id: str) -> Callable[[Device], AgentClient]:
        def open_client(device: Device) -> AgentClient:
            client = AgentClient(
                LocalTransport(device, state_dir=str(self.state)),
                campaign=campaign,
                client_id=client_id,
                heartbeat_s=0.2,
            )
            call = client.call

            async def watched(op: str, **values: Any) -> Any:
                waits = self.before_call(op, values)
                if waits is not None:
                    await waits
                return await call(op, **values)

            client.call = watched  # type: ignore[method-assign]
            self.clients.append(client)
            return client

        return open_client

    def submit(self, shell: str, **files: Any) -> None:
        task = shell_task(shell, cwd=None)
        self.engine.submit_rule("rule", "pi5", str(self.folder / "runs"), task, RuleFiles(str(self.work), **files))

    def run(self, shell: str, **files: Any) -> str:
        self.submit(shell, **files)
        self.told.wait(1)
        assert self.engine.shutdown(20)
        return str(self.told.done["rule"])

    @property
    def message(self) -> str:
        failure = self.told.failures["rule"]
        assert failure is not None
        return str(failure.message)

    def cut_the_link(self) -> None:
        for client in self.clients:
            if client._session is not None and isinstance(client._session.channel, LocalChannel):
                client._session.channel.process.kill()

    def left(self) -> list[str]:
        """What lies here beside declared names, and there beside the store."""
        here = [str(path) for path in self.work.rglob("*.partial")]
        return here + [str(path) for path in self.state.glob("runs/*/rule-*")]


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Far(tmp_path, monkeypatch)


def ran(far: Far) -> list[str]:
    path = far.folder / "ran"
    return path.read_text().split() if path.exists() else []


def test_inputs_go_there_and_outputs_come_back(far: Far) -> None:
    (far.work / "in/deep").mkdir(parents=True)
    (far.work / "in/deep/x").write_text("x")
    (far.work / "link").symlink_to("in/deep/x")
    outcome = far.run(
        "cat in/deep/x link > out/y; echo $TOKEN > out/secret; find in link out -type f | sort > log",
        inputs=("in", "link"),
        outputs=("out/y", "out/secret"),
        logs=("log",),
    )
    assert outcome == "ok", far.message
    assert (far.work / "out/y").read_text() == "xx"
    assert (far.work / "out/secret").read_text() == "s3cret\n"
    assert (far.work / "log").read_text().split() == ["in/deep/x", "link", "out/secret", "out/y"]
    assert far.left() == []
    staging = {(event["device"], event["file"]) for event in far.told.events if event["kind"] == "staging"}
    assert staging == {("pi5", "in/deep/x")}, "two names, one content: it is sent once"


def test_a_link_that_breaks_at_each_piece_costs_no_byte_twice(far: Far) -> None:
    asked: list[list[tuple[int, int, int]]] = []

    def cut(op: str, values: dict[str, Any]) -> None:
        if op == "file":
            if len(asked) % 2 == 0:  # every other request: its answer is lost
                far.cut_the_link()
            asked.append(values["pieces"])

    far.before_call = cut
    shell = f"echo ran >> {far.folder}/ran; head -c {BIG_BYTES} /dev/urandom > big; cp big {far.folder}/kept"
    assert far.run(shell, outputs=("big",)) == "ok", far.message
    assert (far.work / "big").read_bytes() == (far.folder / "kept").read_bytes()
    assert ran(far) == ["ran"]
    offsets = [pieces[0][1] for pieces in asked]
    assert offsets == sorted(offsets)
    assert len(asked) >= 4
    assert far.left() == []


def test_a_rule_that_ends_while_the_link_is_away_is_fetched_and_not_run_again(far: Far) -> None:
    far.submit(
        f"echo ran >> {far.folder}/ran; while [ ! -e {far.folder}/go ]; do sleep 0.02; done; echo x > out",
        outputs=("out",),
    )
    far.told.until(lambda told: ran(far) == ["ran"] and told.started, "it runs")
    away = asyncio.Event()

    async def nobody_there() -> None:
        if not any(far.state.glob("runs/*/rule-*/result")):
            raise TransportError("no way to the device")

    far.before_call = lambda op, values: nobody_there() if away.is_set() and op == "client" else None
    away.set()
    far.cut_the_link()
    far.told.until(lambda told: "link_lost" in told.kinds(), "the link is missed")
    (far.folder / "go").touch()
    far.told.wait(1)
    assert far.engine.shutdown(20)
    assert far.told.done == {"rule": "ok"}
    assert ran(far) == ["ran"]
    assert (far.work / "out").read_text() == "x\n"
    assert far.left() == []


def test_a_run_that_is_lost_there_is_run_again_with_its_inputs(far: Far) -> None:
    (far.work / "in").write_text("x")
    far.submit(
        f"echo ran >> {far.folder}/ran; while [ ! -e {far.folder}/go ]; do sleep 0.02; done; cat in > out",
        inputs=("in",),
        outputs=("out",),
    )
    far.told.until(lambda told: ran(far) == ["ran"] and told.started and procs(far), "it runs")
    (far.work / "in").write_text("made anew")
    (proc,) = procs(far)
    os.kill(_runner(proc), signal.SIGKILL)
    (far.folder / "go").touch()
    far.told.wait(1)
    assert far.engine.shutdown(20)
    assert far.told.done == {"rule": "ok"}, far.message
    assert ran(far) == ["ran", "ran"]
    assert (far.work / "out").read_text() == "made anew"
    assert not list(far.state.glob("runs/*/rule-*/work")), "also of the lost attempt"


def procs(far: Far) -> list[Path]:
    """Where runners say who they are: a moment after the command began."""
    return [path for path in far.state.glob("runs/*/rule-*/proc.json") if path.stat().st_size]


def _runner(proc: Path) -> int:
    import json

    return int(json.loads(proc.read_text())["runner"])


def test_a_stop_does_not_wait_for_files_on_their_way(far: Far) -> None:
    asked = []

    def hang(op: str, values: dict[str, Any]) -> Any:
        if op == "file":
            asked.append(op)
            return asyncio.Event().wait()
        return None

    far.before_call = hang
    far.submit("echo x > out", outputs=("out",))
    far.told.until(lambda told: bool(asked), "the output is fetched")
    far.engine.cancel()
    far.told.wait(1)
    assert far.told.done == {"rule": "cancelled"}
    assert far.engine.shutdown(20), "it ended by itself"
    assert not (far.work / "out").exists()
    assert [path for path in far.left() if path.endswith(".partial")] == []


def test_a_stop_does_not_wait_for_a_late_output(tmp_path: Path) -> None:
    told, work = Told(), tmp_path / "work"
    work.mkdir()
    here = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    plan = make_plan(tmp_path / "runs", noops(1), devices=[here])
    engine = Engine(told)
    engine.add_lab(str(tmp_path / "runs"), plan)
    files = RuleFiles(str(work), outputs=("never",), latency_wait_s=3600.0)
    engine.submit_rule("rule", "local", str(tmp_path / "runs"), shell_task("touch ran", cwd=str(work)), files)
    told.until(lambda _: any((tmp_path / "agent").glob("runs/*/rule-*/result")), "it has ended")
    engine.cancel()
    told.wait(1)
    assert told.done == {"rule": "cancelled"}
    assert engine.shutdown(20)


def test_what_cannot_be_written_here_is_said_and_nothing_is_half_there(far: Far) -> None:
    (far.work / "taken").write_text("a file where a folder should be")
    assert far.run("mkdir -p taken; echo x > taken/out; echo y > other", outputs=("taken/out", "other")) == "failed"
    assert "could not be put in place on this machine" in far.message
    assert "taken" in far.message
    assert not (far.work / "other").exists()
    assert far.left() == []


def test_an_input_that_is_gone_fails_the_rule_before_anything_runs(far: Far) -> None:
    assert far.run(f"echo ran > {far.folder}/ran", inputs=("gone",), outputs=()) == "failed"
    assert "gone" in far.message
    assert ran(far) == []
    assert far.told.failures["rule"].failure_class == "config"
