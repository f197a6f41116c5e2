"""The files of a user's rule on its device: inputs laid out from the store, outputs and logs kept and fetched."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.conftest import Here
from agent.helpers_agent import Bench, drive, ended, eventually, sh, written
from sidewinder.files.arrival import Arrival
from sidewinder.model import FileCheck, RawResult, StagedInput, Task
from sidewinder.transports.client import AgentClient

LARGE_BYTES = (64 << 20) + 1


class Direct:
    """An arrival that a fetch may fill, in the loop of a test."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival

    async def expect(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self.arrival.expect(entries)

    def have(self, number: int) -> int:
        return self.arrival.have(number)

    async def take(self, number: int, data: bytes) -> None:
        self.arrival.take(number, data)


async def bring(client: AgentClient, run_id: str, task: Task, home: Path) -> RawResult:
    """Run it, bring its files to ``home``, acknowledge."""
    started = await client.start(run_id, 1, task)
    assert started.outcome == "started", started
    assert (await ended(client, run_id)).state == "finished"
    raw = await client.fetch(run_id, 1)
    arrival = Arrival(str(home), task.outputs, task.logs)
    await client.fetch_files(run_id, 1, raw.files, Direct(arrival))
    arrival.place(outputs=True)
    await client.ack(run_id, 1)
    return raw


def brought(here: Here, home: Path, task: Task) -> RawResult:
    here.count += 1
    return here.runner.run(bring(here.client, f"files-{here.count}", task, home))


def in_store(state: Path, content: bytes) -> tuple[str, str]:
    """(digest, path) of a file as staging leaves it."""
    digest = hashlib.sha256(content).hexdigest()
    path = state / "store" / digest
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(content)
        path.chmod(0o444)
    return digest, str(path)


def staged(state: Path, path: str, content: bytes, *, executable: bool = False) -> StagedInput:
    digest, source = in_store(state, content)
    return StagedInput(path, source, digest, executable)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_come_home_as_they_are(here: Here, tmp_path: Path) -> None:
    script = (
        "mkdir d; head -c 3000000 /dev/zero > d/big; printf hi > small; : > empty; cp /bin/true prog; ln -s small s"
    )
    task = sh(script, outputs=("small", "d/big", "empty", "prog", "s"))
    raw = brought(here, tmp_path, task)
    true = Path("/bin/true").read_bytes()
    assert tree(tmp_path) == {"small": b"hi", "d/big": b"\0" * 3_000_000, "empty": b"", "prog": true, "s": b"hi"}
    assert os.access(tmp_path / "prog", os.X_OK)
    assert not (tmp_path / "s").is_symlink(), "what it points to does not come along"
    assert "outputs_missing" not in raw.evidence


def test_all_outputs_or_none(here: Here, tmp_path: Path) -> None:
    raw = brought(here, tmp_path, sh("mkdir d; touch a d/wrong; echo l > log", outputs=("a", "d/right"), logs=("log",)))
    assert raw.evidence["outputs_missing"] == ["d/right"]
    assert raw.evidence["outputs_instead"] == {"d/right": ["wrong"]}
    assert tree(tmp_path) == {"log": b"l\n"}


@pytest.mark.parametrize(("how", "state"), [("exit 3", "done"), ("kill -9 $$", "done"), ("sleep 1000", "timeout")])
def test_logs_come_however_it_ended(how: str, state: str, here: Here, tmp_path: Path) -> None:
    task = sh(f"echo out > out; echo said > log; {how}", outputs=("out",), logs=("log", "never"), timeout_s=0.5)
    assert brought(here, tmp_path, task).state == state
    assert tree(tmp_path) == {"log": b"said\n"}


def test_a_folder_with_links_comes_whole(here: Here, tmp_path: Path) -> None:
    script = """
        echo outside > out; mkdir -p o/sub/none; echo x > o/x; mkfifo unused
        ln -s x o/inner; ln -s ../x o/sub/up; ln -s ../out o/outer; ln -s $PWD/o/x o/absolute; ln -s sub o/subs
    """
    brought(here, tmp_path, sh(script, outputs=("o",)))
    links = {path.name: os.readlink(path) for path in (tmp_path / "o").rglob("*") if path.is_symlink()}
    assert links == {"inner": "x", "up": "../x", "subs": "sub"}
    assert (tmp_path / "o/outer").read_text() == "outside\n"
    assert (tmp_path / "o/absolute").read_text() == "x\n"
    assert (tmp_path / "o/sub/none").is_dir()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("mkdir o; mkfifo o/f", "o/f is neither a file nor a folder"),
        ("mkdir o; ln -s nothing o/l", "o/l"),
        ("mkdir o; ln -s $PWD o/all", "leads back to a folder above it"),
    ],
    ids=["pipe", "dangling", "circle"],
)
def test_what_cannot_be_sent_is_named(script: str, why: str, here: Here, tmp_path: Path) -> None:
    raw = brought(here, tmp_path, sh(script, outputs=("o",)))
    assert why in raw.evidence["outputs_failed"]["o"]
    assert tree(tmp_path) == {}


def test_inputs_lie_where_the_command_looks(here: Here, tmp_path: Path) -> None:
    state = here.bench.state
    inputs = (
        staged(state, "a.txt", b"a"),
        staged(state, "deep/er/prog.sh", b"#!/bin/sh\ncat a.txt", executable=True),
        staged(state, "deep/same.txt", b"a"),
    )
    task = sh("deep/er/prog.sh > out/x; echo more >> deep/same.txt; ls out empty > log", outputs=("out/x",))
    brought(here, tmp_path, Task(task.argv, inputs=inputs, folders=("out", "empty/folder"), outputs=("out/x",)))
    assert tree(tmp_path) == {"out/x": b"a"}
    assert Path(inputs[0].source).read_bytes() == b"a", "each run has copies of its own"


def test_a_large_input_takes_no_room_twice(here: Here, tmp_path: Path) -> None:
    one = staged(here.bench.state, "large", b"\0" * LARGE_BYTES)
    task = sh("stat -c '%h %s' large > out", inputs=(one,), outputs=("out",))
    for _ in range(2):  # the link of the first run is gone, the digest of the second is not taken on trust
        assert brought(here, tmp_path, task).returncode == 0
        assert (tmp_path / "out").read_text() == f"2 {LARGE_BYTES}\n"
    os.unlink(one.source)


@pytest.mark.parametrize("size", [3, LARGE_BYTES], ids=["copied", "linked"])
def test_a_damaged_store_is_never_used(size: int, here: Here, tmp_path: Path) -> None:
    one = staged(here.bench.state, "in", b"\1" * size)
    os.chmod(one.source, 0o600)
    Path(one.source).write_bytes(b"\2" * size)
    raw = brought(here, tmp_path, sh("touch out", inputs=(one,), outputs=("out",)))
    assert (raw.state, raw.error) == ("refused", "input_lost")
    assert not os.path.exists(one.source), "it is brought again"
    raw = brought(here, tmp_path, sh("touch out", inputs=(one,), outputs=("out",)))
    assert (raw.state, raw.error) == ("refused", "input_lost")
    assert tree(tmp_path) == {}


def test_a_model_that_was_brought_and_is_damaged_may_be_brought_again(here: Here) -> None:
    digest, source = in_store(here.bench.state, b"weights of a model")
    looked_at = sh("echo ran", checks=(FileCheck(source, digest.upper(), "model smol"),))
    assert here.measure(looked_at).stdout.head == b"ran\n"
    os.chmod(source, 0o600)
    Path(source).write_bytes(b"weights of a mouse")
    for _ in range(2):  # damaged, then gone: neither is what a person got wrong
        raw = here.measure(looked_at)
        assert (raw.state, raw.error, raw.stdout.total_bytes) == ("refused", "input_lost", 0)
        assert "model smol" in str(raw.detail)
        assert not os.path.exists(source), "it is not taken for whole again"


def test_inputs_without_room_for_their_copies_are_refused_before_any_is_made(here: Here, tmp_path: Path) -> None:
    digest, source = in_store(here.bench.state, b"\3" * (1 << 20))
    os.chmod(source, 0o600)
    os.truncate(source, (64 << 20) - 1)  # sparse: it takes no room itself
    room = os.statvfs(here.bench.state)
    count = room.f_bavail * room.f_frsize // ((64 << 20) - 1) + 100
    inputs = tuple(StagedInput(f"copy-{i}", source, digest) for i in range(count))
    raw = brought(here, tmp_path, sh("touch out", inputs=inputs, outputs=("out",)))
    assert (raw.state, raw.error) == ("refused", "disk_full")
    assert f"the inputs need {count * ((64 << 20) - 1)} bytes beside the store" in str(raw.detail)
    os.unlink(source)


def test_nothing_stays_of_a_run_whose_runner_was_killed(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        one = staged(bench.state, "in", b"x")
        await client.start("r", 1, sh("sleep 1000", inputs=(one,)))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        for pid in bench.runners():
            os.kill(pid, signal.SIGKILL)
        assert (bench.record("r") / "work" / "in").exists()
        assert await client.stop("r", 1)
        assert not (bench.record("r") / "work").exists()

    drive(tmp_path, body)


def test_a_result_that_nobody_fetches_is_kept_for_its_time(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        for run_id, keep_s in (("rule", 120.0), ("point", None)):
            await client.start(run_id, 1, sh("echo x > out", outputs=("out",), keep_result_s=keep_s))
            assert (await ended(client, run_id)).state == "finished"
            assert (bench.record(run_id) / "out.0").exists()
        await client.close()
        await (await bench.client("another")).close()
        assert bench.record("rule").exists(), "its time is not over"
        for run_id in ("rule", "point"):
            long_ago = os.stat(bench.record(run_id)).st_mtime - 200  # no result of this boot is older than the boot
            os.utime(bench.record(run_id), (long_ago, long_ago))
        await bench.client("third")
        await eventually(lambda: not bench.record("rule").exists())
        assert bench.record("point").exists()

    drive(tmp_path, body)


def test_many_small_files_take_few_round_trips(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    call = here.client.call

    async def counting(op: str, **values: Any) -> Any:
        asked.append(op)
        return await call(op, **values)

    monkeypatch.setattr(here.client, "call", counting)
    brought(here, tmp_path, sh("mkdir o; for i in $(seq 1000); do echo $i > o/$i; done", outputs=("o",)))
    assert {int(name): text for name, text in tree(tmp_path / "o").items()} == {
        i: f"{i}\n".encode() for i in range(1, 1001)
    }
    assert asked.count("file") < 10


def test_a_socket_among_the_outputs_is_named(here: Here, tmp_path: Path) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    raw = brought(here, tmp_path, sh(f'python3 -c "{code}"', outputs=("s",)))
    assert hasattr(socket, "AF_UNIX")
    assert "neither a file nor a folder" in raw.evidence["outputs_failed"]["s"]


def test_what_nobody_asks_for_leaves_the_store_after_a_month(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        files = {name: in_store(bench.state, name.encode()) for name in ("wanted", "unwanted", "young")}
        for name in ("wanted", "unwanted"):
            long_ago = os.stat(files[name][1]).st_mtime - 31 * 86400
            os.utime(files[name][1], (long_ago, long_ago))
        wanted = files["wanted"][0]
        assert list(await client.staged([wanted])) == [wanted]
        assert sorted(os.listdir(bench.state / "store")) == sorted([wanted, files["young"][0]])
        assert await client.staged([wanted]), "asking for it made it young"

    drive(tmp_path, body)
