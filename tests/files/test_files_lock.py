"""The run folder's lock, with real processes: who holds it, who is dead, who comes first."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import LockHeld, PublishError
from sidewinder.files import holder as holder_module
from sidewinder.files import lock
from sidewinder.files.holder import Holder
from sidewinder.files.lock import ControllerLock

HOLD = """
import sys
from sidewinder.files.lock import ControllerLock
lock = ControllerLock(sys.argv[1]).acquire(shared=sys.argv[2] == "shared")
print("held", flush=True)
sys.stdin.read()
lock.release()
"""
RACE = """
import sys
from sidewinder.errors import LockHeld
from sidewinder.files.lock import ControllerLock
print("ready", flush=True)
sys.stdin.readline()
lock = ControllerLock(sys.argv[1])
try:
    lock.acquire()
    print("won", "over the dead" if lock.took_over else "", flush=True)
except LockHeld as error:
    print("lost", error, flush=True)
sys.stdin.readline()
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextmanager
def held_by_another(folder: Path, how: str = "exclusive") -> Iterator[subprocess.Popen[str]]:
    process = start(HOLD, str(folder), how)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def name_in_lock(folder: Path, **changes: Any) -> None:
    """Leave the name of a holder behind, as a killed controller does."""
    me = {"host": "", "boot_id": "", "pid": 0, "start": "", "since_utc": "2026-11-30T00:00:00+00:00"}
    me |= json.loads(Holder.me().encode()) | changes
    folder.mkdir(exist_ok=True)
    (folder / "controller.lock").write_text(json.dumps(me))


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_take_give_back_take_again(tmp_path: Path) -> None:
    for _ in range(2):
        with ControllerLock(str(tmp_path / "new" / "folder")).acquire() as mine:
            assert mine.took_over is None
            assert [each.pid for each in lock.holders(mine.folder)] == [os.getpid()]
        assert lock.holders(mine.folder) == []
    mine.release()


def test_a_live_controller_is_named_with_the_command_that_helps(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as other:
        with pytest.raises(LockHeld) as refused:
            ControllerLock(str(tmp_path)).acquire()
        said = str(refused.value)
        assert str(tmp_path) in said
        assert f"pid {other.pid}" in said
        assert os.uname().nodename in said
        assert re.search(r"since 20\d\d-\d\d-\d\dT", said)
        assert f"kill {other.pid}" in said
        with pytest.raises(LockHeld):  # a living one is not to be struck out
            lock.break_lock(str(tmp_path))
        other.terminate()  # the command that the message gives
        other.wait()
        ControllerLock(str(tmp_path)).acquire().release()


def test_kill_9_and_the_same_command_again(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as other:
        (tmp_path / "records/pi5").mkdir(parents=True)
        (tmp_path / "records/pi5/.a.json.1-abc-0.partial").write_text("half")
        other.send_signal(signal.SIGKILL)
        other.wait()
        with ControllerLock(str(tmp_path)).acquire() as mine:
            assert mine.took_over is not None
            assert mine.took_over.pid == other.pid
            assert not list(tmp_path.rglob("*.partial"))


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as other:
        os.kill(other.pid, signal.SIGKILL)
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # dead, not reaped
        ControllerLock(str(tmp_path)).acquire().release()


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({"pid": "gone"}, True),
        ({"start": "12345"}, True),  # the pid came back as another process
        ({"boot_id": "another boot", "pid": 1}, True),
        ({}, False),  # this very process: no flock, but it lives
        ({"start": None}, False),
        ({"boot_id": None, "pid": "gone"}, False),
        ({"host": "elsewhere"}, False),
        ({"host": "elsewhere", "boot_id": "another boot", "pid": "gone"}, False),
    ],
)
def test_who_is_provably_dead(changes: dict[str, Any], dead: bool, tmp_path: Path) -> None:
    if changes.get("pid") == "gone":
        changes = {**changes, "pid": dead_pid()}
    name_in_lock(tmp_path, **changes)
    mine = ControllerLock(str(tmp_path))
    if dead:
        assert mine.acquire().took_over is not None
        mine.release()
    else:
        with pytest.raises(LockHeld):
            mine.acquire()


@pytest.mark.parametrize("content", ["", "{", '{"host": 3}', "\0" * 512])
def test_a_name_that_was_never_whole_is_nobodys(content: str, tmp_path: Path) -> None:
    (tmp_path / "controller.lock").write_text(content)
    with ControllerLock(str(tmp_path)).acquire() as mine:
        assert mine.took_over is None


def test_an_unknowable_holder_is_struck_out_by_the_command_named(tmp_path: Path) -> None:
    name_in_lock(tmp_path, host="login7", pid=4711)
    with pytest.raises(LockHeld, match=r"host login7 \(pid 4711, since 2026.*sidewinder unlock"):
        ControllerLock(str(tmp_path)).acquire()
    assert [each.host for each in lock.break_lock(str(tmp_path))] == ["login7"]
    ControllerLock(str(tmp_path)).acquire().release()
    assert lock.break_lock(str(tmp_path / "no such folder")) == []


@pytest.mark.parametrize("before", ["nobody", "a dead controller"])
def test_of_many_at_once_one_wins(before: str, tmp_path: Path) -> None:
    if before != "nobody":
        name_in_lock(tmp_path, pid=dead_pid())
    racers = [start(RACE, str(tmp_path)) for _ in range(6)]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        said = [racer.stdout.readline() for racer in racers if racer.stdout is not None]
    finally:
        for racer in racers:
            racer.communicate()
    won = [line for line in said if line.startswith("won")]
    assert len(won) == 1, said
    assert ("over the dead" in won[0]) == (before != "nobody")
    assert all("held by a controller" in line or "just being taken" in line for line in said if line not in won)


class TestSidewinderMeasure:
    """Several at once share the folder; a controller and they exclude each other."""

    def test_several_share(self, tmp_path: Path) -> None:
        with held_by_another(tmp_path, "shared") as other, ControllerLock(str(tmp_path)).acquire(shared=True):
            assert {each.pid for each in lock.holders(str(tmp_path))} == {other.pid, os.getpid()}

    def test_a_controller_is_refused_beside_them(self, tmp_path: Path) -> None:
        with held_by_another(tmp_path, "shared") as other:
            with pytest.raises(LockHeld, match=rf"sidewinder measure on host .*pid {other.pid}"):
                ControllerLock(str(tmp_path)).acquire()
            other.kill()
            other.wait()
            ControllerLock(str(tmp_path)).acquire().release()
            assert lock.holders(str(tmp_path)) == []

    def test_they_are_refused_beside_a_controller(self, tmp_path: Path) -> None:
        with held_by_another(tmp_path) as other, pytest.raises(LockHeld, match=f"pid {other.pid}"):
            ControllerLock(str(tmp_path)).acquire(shared=True)

    def test_one_on_another_host_keeps_a_controller_out(self, tmp_path: Path) -> None:
        with held_by_another(tmp_path, "shared"):
            entry = next((tmp_path / "controller.lock.shared").glob("*.json"))
            entry.write_text(json.dumps({**json.loads(entry.read_text()), "host": "login7"}))
        with pytest.raises(LockHeld, match="host login7"):
            ControllerLock(str(tmp_path)).acquire()
        ControllerLock(str(tmp_path)).acquire(shared=True).release()
        assert len(lock.break_lock(str(tmp_path))) == 1
        ControllerLock(str(tmp_path)).acquire().release()

    def test_a_dead_controllers_name_does_not_stop_them(self, tmp_path: Path) -> None:
        name_in_lock(tmp_path, pid=dead_pid())
        ControllerLock(str(tmp_path)).acquire(shared=True).release()


def test_a_refused_controller_leaves_nothing_behind(tmp_path: Path) -> None:
    name_in_lock(tmp_path, host="login7")
    before = (tmp_path / "controller.lock").read_bytes()
    with pytest.raises(LockHeld):
        ControllerLock(str(tmp_path)).acquire()
    assert (tmp_path / "controller.lock").read_bytes() == before


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PublishError, match=r"lock .*a file lies where a folder should be"):
        ControllerLock(str(tmp_path / "file")).acquire()


def test_a_file_system_without_flock_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_flock(fd: int, kind: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(lock.fcntl, "flock", no_flock)
    with pytest.raises(PublishError, match="has no file locks"):
        ControllerLock(str(tmp_path)).acquire()


def test_start_times_where_there_is_no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way a Mac is asked, with this machine's `ps`."""
    monkeypatch.setattr(holder_module.sys, "platform", "darwin")
    mine = holder_module.start_of(os.getpid())
    assert mine is None or re.search(r"\d\d:\d\d:\d\d \d{4}", mine)
    assert holder_module.start_of(dead_pid()) is None
