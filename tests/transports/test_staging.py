"""Staging over the local transport: content reaches the device whole, once, whoever else is at it."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import random
import signal
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agent.helpers_agent import PATIENCE_S, Bench, drive, front_pid, sh
from sidewinder.engine import devices as engine_devices
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.transports import staging
from sidewinder.transports.client import AgentClient
from sidewinder.transports.staging import digest_of

MIB = 1 << 20


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def make_file(path: Path, size_bytes: int = 5 * MIB + 17, seed: int = 1) -> tuple[Path, str]:
    content = random.Random(seed).randbytes(size_bytes)
    path.write_bytes(content)
    return path, hashlib.sha256(content).hexdigest()


def same(one: Path, other: Path) -> bool:
    return one.read_bytes() == other.read_bytes()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def part(bench: Bench, digest: str) -> Path:
    return bench.state / "store" / f"{digest}.part"


class Watched:
    """The pieces that a client sends: where each began and how long it was."""

    def __init__(self, client: AgentClient, after: Callable[[int], Awaitable[None]] | None = None) -> None:
        self.offsets: list[int] = []
        self.sent_bytes = 0
        call = client.call

        async def counted(op: str, **values: Any) -> Any:
            if op == "stage_append":
                self.offsets.append(values["offset"])
                self.sent_bytes += len(values["blob"])
            answer = await call(op, **values)
            if op == "stage_append" and after is not None:  # not before: the next piece must not overtake this one
                await after(values["offset"])
            return answer

        client.call = counted  # type: ignore[method-assign]


def test_a_file_is_brought_once_and_read_only(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")
    size = source.stat().st_size
    stored = tmp_path / "state" / "store" / digest

    async def body(bench: Bench) -> None:
        client = await bench.client()
        watched = Watched(client)
        told: list[int] = []
        assert await client.staged([digest]) == {}
        assert await client.stage(source, digest, progress=told.append) == str(stored) == client.store_path(digest)
        assert same(stored, source)
        assert [mode_of(path) for path in (stored, stored.parent)] == [0o444, 0o700]
        assert (told[0], told[-1], told == sorted(told)) == (0, size, True)
        assert watched.sent_bytes == size
        assert await client.staged([digest, "0" * 64]) == {digest: str(stored)}
        told.clear()
        assert await client.stage(source, digest, progress=told.append) == str(stored)
        assert (watched.sent_bytes, told) == (size, [size]), "nothing was sent again"
        assert os.listdir(stored.parent) == [digest]

    drive(tmp_path / "state", body)


@pytest.mark.parametrize("size_bytes", [0, 1, MIB, 3 * MIB + 1])
def test_files_of_any_size(size_bytes: int, tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "file", size_bytes)

    async def body(bench: Bench) -> None:
        client = await bench.client()
        assert same(Path(await client.stage(source, digest)), source)

    drive(tmp_path / "state", body)


def test_a_program_stays_executable_also_when_its_content_lay_there(tmp_path: Path) -> None:
    data, digest = make_file(tmp_path / "data", 100)
    program, _ = make_file(tmp_path / "program", 100)
    program.chmod(0o755)

    async def body(bench: Bench) -> None:
        client = await bench.client()
        path = Path(await client.stage(data, digest))
        assert mode_of(path) == 0o444
        await client.stage(program, digest)
        assert mode_of(path) == 0o555
        await client.stage(data, digest)
        assert mode_of(path) == 0o555, "somebody may run it"

    drive(tmp_path / "state", body)


def test_a_transfer_that_broke_off_goes_on_from_what_lies_there(tmp_path: Path) -> None:
    """By another controller, too, and after the front was killed in the middle of it."""
    source, digest = make_file(tmp_path / "model", 9 * MIB)

    async def body(bench: Bench) -> None:
        client = await bench.client("first")

        async def kill_at_half(offset: int) -> None:
            if offset >= 4 * MIB:
                with suppress(ProcessLookupError):  # the answer to another piece was on its way, too
                    os.kill(front_pid(client), signal.SIGKILL)

        Watched(client, kill_at_half)
        with pytest.raises(TransportError, match="'here'"):  # the link is lost, or gone by the next piece
            await client.stage(source, digest)
        lies_there = part(bench, digest).stat().st_size
        assert lies_there >= MIB
        second = await bench.client("second")
        watched = Watched(second)
        told: list[int] = []
        path = Path(await second.stage(source, digest, progress=told.append))
        assert same(path, source)
        assert (told[0], watched.sent_bytes) == (lies_there, 9 * MIB - lies_there)

    drive(tmp_path / "state", body)


@pytest.mark.parametrize("left_bytes", [2 * MIB, 5 * MIB + 17, 6 * MIB], ids=["half", "all", "too-much"])
def test_a_partial_that_is_not_that_file_is_thrown_away_and_sent_anew(left_bytes: int, tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        part(bench, digest).parent.mkdir(mode=0o700)
        part(bench, digest).write_bytes(b"x" * left_bytes)
        watched = Watched(client)
        path = Path(await client.stage(source, digest))
        assert same(path, source)
        assert watched.offsets.count(0) == 1
        assert not part(bench, digest).exists()

    drive(tmp_path / "state", body)


def test_what_arrives_damaged_twice_is_the_devices_fault(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()

        async def damage(offset: int) -> None:
            if offset > MIB:
                fd = os.open(part(bench, digest), os.O_WRONLY)
                os.pwrite(fd, b"a bad sector", 5000)
                os.close(fd)

        watched = Watched(client, damage)
        with pytest.raises(DeviceFault, match=rf"'here'.*arrived damaged twice.*{digest}"):
            await client.stage(source, digest)
        assert watched.offsets.count(0) == 2, "once more, and then no more"
        assert os.listdir(part(bench, digest).parent) == []

    drive(tmp_path / "state", body)


def test_a_file_that_changes_while_it_is_brought_is_our_own_affair(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model", 12 * MIB)  # some of it is not read yet when it changes

    async def body(bench: Bench) -> None:
        client = await bench.client()

        async def rewrite(offset: int) -> None:
            if offset > MIB:
                with source.open("r+b") as file:  # in place: never shorter, not even for a moment
                    file.write(random.Random(2).randbytes(12 * MIB))

        Watched(client, rewrite)
        with pytest.raises(ConfigError, match="changed while it was brought"):
            await client.stage(source, digest)

        async def shorten(offset: int) -> None:
            if offset > MIB:
                os.truncate(source, 2 * MIB)

        Watched(client, shorten)
        with pytest.raises(ConfigError, match="became shorter"):
            await client.stage(make_file(source, 9 * MIB)[0], "1" * 64)

    drive(tmp_path / "state", body)


def test_a_file_that_is_not_here(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        with pytest.raises(ConfigError, match=r"No such file.*nowhere"):
            await client.stage(tmp_path / "nowhere", "0" * 64)

    drive(tmp_path / "state", body)


def test_those_who_want_one_file_share_one_transfer_and_one_may_leave(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        began, go = asyncio.Event(), asyncio.Event()

        async def held(offset: int) -> None:
            began.set()
            await go.wait()

        watched = Watched(client, held)
        told: list[int] = []
        first, *others = (asyncio.create_task(client.stage(source, digest, progress=told.append)) for _ in range(5))
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert set(await asyncio.gather(*others)) == {client.store_path(digest)}
        assert watched.sent_bytes == source.stat().st_size
        assert told.count(source.stat().st_size) >= 4

    drive(tmp_path / "state", body)


def test_the_last_who_leaves_ends_the_transfer(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        began = asyncio.Event()

        async def held(offset: int) -> None:
            began.set()
            await asyncio.Event().wait()

        Watched(client, held)
        only = asyncio.create_task(client.stage(source, digest))
        await asyncio.wait_for(began.wait(), PATIENCE_S)
        only.cancel()
        await asyncio.wait([only], timeout=PATIENCE_S)
        assert only.done()
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("stage ")]

    drive(tmp_path / "state", body)


def test_two_controllers_at_once_spoil_nothing(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model", 20 * MIB)

    async def body(bench: Bench) -> None:
        clients = [await bench.client(name) for name in ("one", "two", "three")]
        paths = await asyncio.gather(*(client.stage(source, digest) for client in clients))
        assert set(paths) == {clients[0].store_path(digest)}
        assert same(Path(paths[0]), source)
        assert os.listdir(Path(paths[0]).parent) == [digest]

    drive(tmp_path / "state", body)


def test_one_waits_while_another_verifies(tmp_path: Path) -> None:
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        part(bench, digest).parent.mkdir(mode=0o700)
        part(bench, digest).write_bytes(source.read_bytes())
        fd = os.open(part(bench, digest), os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)  # as a front does that reads it back
        asked = asyncio.Event()
        call = client.call

        async def watched(op: str, **values: Any) -> Any:
            answer = await call(op, **values)
            if answer[0].get("busy"):
                asked.set()
            return answer

        client.call = watched  # type: ignore[method-assign]
        waiting = asyncio.create_task(client.stage(source, digest))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        assert not waiting.done()
        os.close(fd)
        assert await waiting == client.store_path(digest)

    drive(tmp_path / "state", body)


def test_a_run_goes_on_and_is_heard_while_files_are_brought(tmp_path: Path) -> None:
    """Heartbeats pass between the pieces."""
    source, digest = make_file(tmp_path / "model", 24 * MIB)

    async def body(bench: Bench) -> None:
        client = await bench.client(heartbeat_s=0.1, lease_s=20.0)
        await client.start("r", 1, sh(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; echo ok"))
        wait = asyncio.create_task(client.wait("r", 1))
        beats = 0
        call = client.call

        async def counted(op: str, **values: Any) -> Any:
            nonlocal beats
            answer = await call(op, **values)
            beats += op == "hb"
            before, end_s = beats, asyncio.get_running_loop().time() + PATIENCE_S
            while op == "stage_append" and values["offset"] > 4 * MIB * (before + 1) and beats == before:
                assert asyncio.get_running_loop().time() < end_s, "heartbeats starve"
                await asyncio.sleep(0.01)  # the next pieces go only when a heartbeat was answered
            return answer

        client.call = counted  # type: ignore[method-assign]
        await client.stage(source, digest)
        (tmp_path / "go").touch()
        assert (await asyncio.wait_for(wait, PATIENCE_S)).state == "finished"
        assert beats >= 4

    drive(tmp_path / "state", body)


def test_pieces_become_smaller_where_the_link_is_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, digest = make_file(tmp_path / "model", 9 * MIB)
    sizes: list[int] = []

    async def body(bench: Bench, quick_s: float, late_s: float) -> list[int]:
        monkeypatch.setattr(staging, "QUICK_S", quick_s)
        monkeypatch.setattr(staging, "LATE_S", late_s)
        client = await bench.client()
        sizes.clear()
        call = client.call

        async def measured(op: str, **values: Any) -> Any:
            if op == "stage_append":
                sizes.append(len(values["blob"]))
            return await call(op, **values)

        client.call = measured  # type: ignore[method-assign]
        await client.stage(source, digest)
        return sizes

    quick = drive(tmp_path / "quick", lambda bench: body(bench, 1000.0, 2000.0))
    assert max(quick) == MIB
    slow = drive(tmp_path / "slow", lambda bench: body(bench, 0.0, 0.0))
    assert min(slow[:-1]) == staging.LEAST_PIECE_BYTES
    assert max(slow) == staging.FIRST_PIECE_BYTES


def test_a_digest_is_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, digest = make_file(tmp_path / "model", 1000)
    os.utime(source, (1, 1))
    monkeypatch.setattr("sidewinder.agent.digests._SETTLED_S", -1e9)
    assert asyncio.run(digest_of(source)) == digest
    known = tmp_path / "cache" / "sidewinder" / "digests.json"
    assert digest in known.read_text()
    known.write_text(known.read_text().replace(digest, "from the cache"))
    assert asyncio.run(digest_of(source)) == "from the cache"
    _, other = make_file(source, 1000, seed=2)
    assert asyncio.run(digest_of(source)) == other


@pytest.mark.parametrize("name", ["nowhere", "folder", "pipe"])
def test_what_has_no_digest_is_refused_by_its_key(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=rf"models\.m\.stage.*{name}"):
        asyncio.run(digest_of(tmp_path / name, key="models.m.stage"))


def test_too_little_room_is_said_before_the_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a real full disk: tests/e2e/test_ssh_staging.py."""
    source, digest = make_file(tmp_path / "model")

    async def body(bench: Bench) -> None:
        client = await bench.client()
        watched = Watched(client)
        monkeypatch.setattr(staging, "RESERVE_BYTES", 1 << 60)
        with pytest.raises(DeviceFault, match=r"'here': no room for .*model: 5242897 bytes .*devices\.here\.workdir"):
            await client.stage(source, digest)
        assert not watched.offsets

    drive(tmp_path / "state", body)


def test_the_reserve_is_what_a_run_needs() -> None:
    assert staging.RESERVE_BYTES == engine_devices.MIN_FREE_BYTES
