"""Kill -9 of controller, front or runner: nothing runs on, nothing overlaps, nothing finished is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agent.helpers_agent import Bench, alive, drive, ended, eventually, front_pid, sh, written
from sidewinder.errors import TransportError


def marked(path: Path) -> str:
    """A script that says when it began and when it was let to end, so that executions can be counted."""
    return (
        f"echo begin >> {path}/log; while [ ! -e {path}/go ]; do sleep 0.02; done; echo end >> {path}/log; echo result"
    )


def log(path: Path) -> list[str]:
    return (path / "log").read_text().split() if (path / "log").exists() else []


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def proc(bench: Bench, run_id: str) -> dict[str, int]:
    found: dict[str, int] = json.loads((bench.record(run_id) / "proc.json").read_text())
    return found


def test_a_front_dies_and_the_run_goes_on(tmp_path: Path) -> None:  # T4
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh(marked(tmp_path)))
        await eventually(lambda: log(tmp_path))
        kill(front_pid(client))
        with pytest.raises(TransportError, match="link lost"):
            await ended(client, "r")
        assert not client.connected
        await client.connect()
        assert (await client.status("r", 1)).state == "running"
        (tmp_path / "go").touch()
        assert (await ended(client, "r")).state == "finished"
        assert (await client.fetch("r", 1)).stdout.head == b"result\n"
        assert log(tmp_path) == ["begin", "end"]

    drive(tmp_path / "state", body)


def test_a_run_that_ends_without_a_front_is_fetched_not_repeated(tmp_path: Path) -> None:  # T1b
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh(marked(tmp_path)))
        await eventually(lambda: log(tmp_path))
        kill(front_pid(client))
        (tmp_path / "go").touch()
        await eventually(lambda: (bench.record("r") / "result").exists())
        with pytest.raises(TransportError):
            await client.status("r", 1)
        await client.connect()
        assert (await client.status("r", 1)).state == "finished"
        assert (await client.fetch("r", 1)).state == "done"
        assert log(tmp_path) == ["begin", "end"]

    drive(tmp_path / "state", body)


def test_a_runner_dies_and_the_workload_with_it(tmp_path: Path) -> None:  # T5
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("exec sleep 1000"))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        found = proc(bench, "r")
        kill(found["runner"])
        status = await ended(client, "r")
        assert (status.state, status.why) == ("lost", "runner_died")
        await eventually(lambda: not alive(found["leader"]))
        assert await client.stop("r", 1)
        assert (await client.start("r", 2, sh("exec sleep 1000"))).outcome == "started"

    drive(tmp_path, body)


def test_a_worker_that_outlives_the_runner_blocks_the_slot_until_it_is_proven_dead(tmp_path: Path) -> None:  # T6
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("setsid sleep 1000 & echo $! > pid; exec sleep 1000"))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        await eventually(lambda: (bench.record("r") / "work" / "pid").exists())
        await eventually(lambda: len(bench.processes()) == 2)
        kill(proc(bench, "r")["runner"])
        assert (await ended(client, "r")).why == "runner_died"
        await eventually(lambda: len(bench.processes()) == 1)  # it is in no session and under no parent of ours
        assert (await client.start("r", 2, sh("true"))).outcome == "busy"
        assert await client.stop("r", 1)
        assert bench.processes() == []
        assert (await client.start("r", 2, sh("true"))).outcome == "started"

    drive(tmp_path, body)


def test_stop_says_unproven_when_a_holder_cannot_be_found(tmp_path: Path) -> None:  # T6b, the known gap
    async def body(bench: Bench) -> None:
        client = await bench.client()
        hidden = (
            "import os,time\nif os.fork(): time.sleep(1000)\nos.setsid()\nos.execve('/bin/sleep',['sleep','1000'],{})"
        )
        await client.start("r", 1, sh(f'exec {sys.executable} -S -c "$CODE"', env={"CODE": hidden}))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        found = proc(bench, "r")
        await eventually(lambda: children(found["leader"]))
        child = children(found["leader"])[0]
        await eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
        try:
            kill(found["runner"])
            await ended(client, "r")
            # It kept the lock's descriptor but neither cookie nor session: seen, though not to be found.
            assert await client.stop("r", 1, wait_s=0.3) is False
            assert (await client.start("r", 2, sh("true"))).outcome == "busy"
        finally:
            kill(child)
        await eventually(lambda: not alive(child))
        assert await client.stop("r", 1)

    drive(tmp_path, body)


def test_a_silent_runner_is_an_error_and_can_be_stopped(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("exec sleep 1000"))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        os.kill(proc(bench, "r")["runner"], signal.SIGSTOP)
        # It accepts connections without ever answering: no proof of life.
        with pytest.raises(TransportError, match="did not answer"):
            await client.status("r", 1)
        assert await client.stop("r", 1, wait_s=2.0)
        assert bench.processes() == []

    drive(tmp_path, body, answer_s=0.3)


def test_nobody_returns_and_the_lease_ends_it(tmp_path: Path) -> None:  # T3b
    async def body(bench: Bench) -> None:
        client = await bench.client(lease_s=1.0, heartbeat_s=0.1)
        await client.start("r", 1, sh("setsid sleep 1000 & exec sleep 1000", grace_s=0.1))
        await eventually(lambda: len(bench.processes()) == 2)
        await client.close()
        await eventually(lambda: (bench.record("r") / "result").exists())
        assert bench.processes() == []
        await client.connect()
        raw = await client.fetch("r", 1)
        assert (raw.state, raw.tree_dead) == ("lease_expired", True)

    drive(tmp_path, body)


def test_heartbeats_keep_a_run_beyond_its_lease(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client(lease_s=0.7, heartbeat_s=0.1)
        await client.start("r", 1, sh("sleep 1.5; echo alive"))
        assert (await ended(client, "r")).state == "finished"
        raw = await client.fetch("r", 1)
        assert (raw.state, raw.stdout.head) == ("done", b"alive\n")

    drive(tmp_path, body)


CONTROLLER = """
    import asyncio, sys
    from sidewinder.model import Device, Task
    from sidewinder.transports.client import AgentClient
    from sidewinder.transports.local import LocalTransport

    async def main():
        client = AgentClient(LocalTransport(Device("here", "local"), state_dir=sys.argv[1]),
                             campaign="campaign", client_id="controller", lease_s=float(sys.argv[3]), heartbeat_s=0.1)
        await client.connect()
        await client.start("r", 1, Task(("/bin/sh", "-c", sys.argv[2])))
        await client.wait("r", 1)

    asyncio.run(main())
"""


def controller(state: Path, script: str, lease_s: float) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", textwrap.dedent(CONTROLLER), str(state), script, str(lease_s)]
    return subprocess.Popen(argv)


def test_a_controller_dies_and_a_new_one_attaches(tmp_path: Path) -> None:  # T3
    async def body(bench: Bench) -> None:
        first = controller(bench.state, marked(tmp_path), 60.0)
        await eventually(lambda: log(tmp_path))
        first.kill()
        first.wait()
        client = await bench.client()
        assert (await client.status("r", 1)).state == "running"
        (tmp_path / "go").touch()
        assert (await ended(client, "r")).state == "finished"
        assert log(tmp_path) == ["begin", "end"]

    drive(tmp_path / "state", body)


def test_a_controller_dies_for_good_and_the_device_falls_quiet(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        first = controller(bench.state, f"echo begin >> {tmp_path}/log; exec sleep 1000", 0.5)
        await eventually(lambda: log(tmp_path))
        first.kill()
        first.wait()
        await eventually(lambda: not bench.processes() and not bench.runners())

    drive(tmp_path / "state", body)


def test_a_record_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """A front killed between the lock and the rename leaves a draft that is no attempt and is swept later."""

    async def body(bench: Bench) -> None:
        client = await bench.client()
        draft = bench.record("r").parent / ".draft-999999999-r.1"
        draft.mkdir(parents=True)
        (draft / "result.new").write_bytes(b"\0" * 100)
        assert (await client.status("r", 1)).state == "absent"
        assert (await client.start("r", 1, sh("true"))).outcome == "started"
        assert (await ended(client, "r")).state == "finished"
        assert not draft.exists()

    drive(tmp_path, body)


def test_a_record_without_a_runner_is_lost_not_running(tmp_path: Path) -> None:
    """The front was killed between the rename and the fork."""

    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert client.hello is not None
        meta = {"campaign": "campaign", "run_id": "r", "n": 1, "cookie": "c00c1e", "lock": "slot", "slot": 0}
        for run_id, boot in (("r", client.hello.boot_id), ("s", "another boot")):
            bench.record(run_id).mkdir(parents=True)
            (bench.record(run_id) / "meta.json").write_text(json.dumps({**meta, "run_id": run_id, "boot_id": boot}))
        status = await client.status("r", 1)
        assert (status.state, status.why) == ("lost", "runner_died")
        status = await client.status("s", 1)
        assert (status.state, status.why) == ("lost", "rebooted")
        assert await client.stop("r", 1)
        assert await client.stop("s", 1)

    drive(tmp_path, body)
