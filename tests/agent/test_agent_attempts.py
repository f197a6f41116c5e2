"""At most one run in a slot, and no attempt ever twice: decided on the device."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from agent.helpers_agent import Bench, drive, ended, eventually, front_pid, run, sh
from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import Task
from sidewinder.transports.frames import encode

LONG = sh("exec sleep 1000")


def test_start_is_idempotent(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        counted = sh(f"echo x >> {tmp_path}/count; cat {tmp_path}/count; sleep 1000")
        assert (await client.start("r", 1, counted)).outcome == "started"
        again = await client.start("r", 1, counted)
        assert (again.outcome, again.state) == ("exists", "running")
        await eventually(lambda: (tmp_path / "count").exists())
        assert await client.stop("r", 1)
        again = await client.start("r", 1, counted)
        assert (again.outcome, again.state) == ("exists", "finished")
        assert (await client.fetch("r", 1)).state == "stopped"
        assert (tmp_path / "count").read_text() == "x\n"

    drive(tmp_path / "state", body)


def test_attempts_only_grow(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await run(client, "r", Task(("true",)), n=3)
        for n in (1, 2, 3):
            stale = await client.start("r", n, Task(("true",)))
            assert (stale.outcome, stale.max_attempt) == ("stale", 3)
        status = await client.status("r", 4)
        assert (status.state, status.max_attempt) == ("absent", 3)
        await run(client, "r", Task(("true",)), n=4)

    drive(tmp_path, body)


def test_a_stopped_attempt_that_never_started_can_start_no_more(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert await client.stop("r", 1)
        assert (await client.start("r", 1, LONG)).outcome == "stale"

    drive(tmp_path, body)


def test_another_campaign_does_not_see_these_runs(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        mine = await bench.client("me", campaign="mine")
        yours = await bench.client("you", campaign="yours")
        await mine.start("r", 1, Task(("true",)))
        assert (await ended(mine, "r")).state == "finished"
        assert (await yours.status("r", 1)).state == "absent"
        with pytest.raises(TransportError, match="no finished run"):
            await yours.fetch("r", 1)

    drive(tmp_path, body)


def test_two_controllers_one_slot_one_run(tmp_path: Path) -> None:  # T8
    async def body(bench: Bench) -> None:
        first, second = await bench.client("first"), await bench.client("second")
        calls = [client.start(f"{client.client_id}-{i}", 1, LONG) for i in range(3) for client in (first, second)]
        answers = await asyncio.gather(*calls)
        assert sorted(answer.outcome for answer in answers) == ["busy"] * 5 + ["started"]
        owner = (first, second)[[answer.outcome for answer in answers].index("started") % 2]
        for index, answer in enumerate(answers):
            if answer.outcome == "busy":
                assert owner.client_id in answer.holder
                assert answer.mine == ((first, second)[index % 2] is owner)
                assert answer.held_by is not None
        held = next(answer.held_by for answer in answers if answer.held_by)
        assert await owner.stop(held[1], held[2])
        assert (await second.start("later", 1, LONG)).outcome == "started"

    drive(tmp_path, body)


def test_slots_and_lock_names_are_apart(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        other = await bench.client("other", lock="other")
        assert (await client.start("a", 1, LONG, 0)).outcome == "started"
        assert (await client.start("b", 1, LONG, 1)).outcome == "started"
        assert (await other.start("c", 1, LONG, 0)).outcome == "started"
        assert (await client.start("d", 1, LONG, 1)).outcome == "busy"
        assert len(bench.processes()) == 3

    drive(tmp_path, body)


def test_a_replaced_lock_file_is_noticed(tmp_path: Path) -> None:
    # A cleaner of temporary files took it away: the lock of the old inode protects nobody who opens the new one.
    from sidewinder.agent.slots import SlotLock

    lock = SlotLock(str(tmp_path), "slot", 0)
    fd = lock.try_take()
    assert fd is not None
    other = SlotLock(str(tmp_path), "slot", 0)
    assert other.try_take() is None
    os.close(fd)
    stale = os.open(lock.path, os.O_RDWR)
    os.unlink(lock.path)
    assert lock._is_still(stale) is False
    Path(lock.path).touch()
    assert lock._is_still(stale) is False
    os.close(stale)
    os.unlink(lock.path)
    os.symlink("/etc/passwd", lock.path)
    with pytest.raises(OSError, match="symbolic"):
        lock.try_take()


def test_ack_is_refused_while_it_runs(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, LONG)
        with pytest.raises(TransportError, match="has not ended"):
            await client.ack("r", 1)
        assert (await client.status("r", 1)).state == "running"

    drive(tmp_path, body)


def test_purge_spares_what_runs_and_forgets_the_rest(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, LONG)
        assert await client.purge() is False
        assert await client.stop("r", 1)
        assert await client.purge() is True
        assert not bench.record("r").parent.exists()
        assert (await client.status("r", 1)).max_attempt == 0

    drive(tmp_path, body)


def test_the_newest_front_wins_and_a_ghost_start_never_runs(tmp_path: Path) -> None:  # T9
    async def body(bench: Bench) -> None:
        old = await bench.client()
        pid = front_pid(old)
        os.kill(pid, signal.SIGSTOP)  # a link that holds bytes back
        session = old._session
        assert session is not None
        ghost = {"op": "start", "id": 99, "campaign": "campaign", "run_id": "ghost", "n": 1, "client": "controller"}
        ghost |= {"lock": "slot", "slot": 0, "lease_s": 60, "task": {"argv": ["sleep", "1000"], "timeout_s": 1000}}
        await session.channel.write(encode(ghost))
        new = await bench.client()
        assert new.hello is not None
        assert new.hello.ended_front == pid
        with pytest.raises(TransportError):
            await old.status("ghost", 1)
        assert (await new.status("ghost", 1)).state == "absent"
        assert bench.processes() == []

    drive(tmp_path, body)


def test_a_takeover_spares_whoever_has_the_number_now(tmp_path: Path) -> None:
    """The file still names a front of long ago whose number belongs to an innocent process by now."""
    from sidewinder.agent.takeover import _is_same

    innocent = subprocess.Popen(["sleep", "1000"])
    try:
        assert _is_same({"pid": innocent.pid, "start": 1}) is False
    finally:
        innocent.kill()
        innocent.wait()


def test_unsafe_names_are_refused(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        for name in ("../x", "a/b", ".hidden", ""):
            with pytest.raises(Exception, match="bad_request"):
                await client.start(name, 1, LONG)
        assert sorted(os.listdir(tmp_path)) == ["fronts"]

    drive(tmp_path, body)


def test_forgotten_by_age_but_never_while_unfetched(tmp_path: Path) -> None:
    from sidewinder.agent.records import FORGET_AFTER_S, RecordStore

    store = RecordStore(str(tmp_path))
    for name, boot in (("old", "before"), ("running", "now"), ("unfetched", "now"), ("fresh", "before")):
        folder = Path(store.folder((name, "r", 1)))
        folder.mkdir(parents=True)
        if name == "unfetched":
            (folder / "result").touch()
        (folder / "meta.json").write_text(json.dumps({"boot_id": boot}))
        store.raise_highest((name, "r", 1))
    now_s = (tmp_path / "runs/old").stat().st_mtime + FORGET_AFTER_S + 10
    os.utime(tmp_path / "runs/fresh", (now_s, now_s))
    # up for a day, and everything is a month old: the clock was set
    assert store.collect_garbage("now", now_s, up_s=86400.0) == ["old"]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["fresh", "running", "unfetched"]
    assert store.collect_garbage("now", now_s, up_s=FORGET_AFTER_S + 10) == ["unfetched"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small tmpfs")
def test_a_full_disk_refuses_the_run_before_it_starts(tmp_path: Path) -> None:  # T11
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=True)
    try:

        async def body(bench: Bench) -> None:
            client = await bench.client()
            with pytest.raises(DeviceFault, match=r"(?s)here.*disk is full"):
                await client.start("r", 1, sh(f"touch {tmp_path}/ran", output_cap_bytes=4 << 20))
            assert not (tmp_path / "ran").exists()
            # Nothing half made stays, the slot is free, and what fits runs under the next attempt.
            raw = await run(client, "r", sh("echo fits", output_cap_bytes=1000), n=2)
            assert raw.stdout.head == b"fits\n"

        drive(disk, body)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
