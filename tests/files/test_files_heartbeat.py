"""A run folder that several hosts see: whose heartbeat moves is left alone, whose stands still is taken over."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import LockHeld
from sidewinder.files import heartbeat, lock
from sidewinder.files.heartbeat import BEAT_S, WATCH_S, Heart
from sidewinder.files.holder import Holder
from sidewinder.files.lock import SETTLE_S, ControllerLock

PATIENCE_S = 30.0


class Time:
    """A monotonic clock that goes on when somebody pauses; what happens elsewhere meanwhile happens then."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.meanwhile: list[tuple[float, Callable[[], object]]] = []

    def now(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        due = [what for at_s, what in self.meanwhile if at_s <= self.now_s]
        self.meanwhile = [(at_s, what) for at_s, what in self.meanwhile if at_s > self.now_s]
        for what in due:
            what()

    def at(self, in_s: float, what: Callable[[], object]) -> None:
        self.meanwhile.append((self.now_s + in_s, what))


class Elsewhere:
    """A controller on another host that does not pass ``flock`` on: its name, and its heartbeat."""

    def __init__(self, folder: Path, host: str = "login7", *, pid: int = 4711) -> None:
        self.path = folder / "controller.lock"
        self.holder = Holder(host, "boot-of-" + host, pid, "77", "2026-11-30T21:00:00+00:00")
        self.heart = Heart(str(self.path), lambda: True)

    def takes_it(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(self.holder.encode().ljust(511) + b"\n")
        self.heart.beat()

    def beats_for(self, clock: Time, seconds: float) -> None:
        at_s = 17.0  # nobody's beats begin when somebody else begins to look
        while at_s < seconds:
            clock.at(at_s, self.heart.beat)
            at_s += BEAT_S


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def other(tmp_path: Path) -> Elsewhere:
    one = Elsewhere(tmp_path)
    one.takes_it()
    return one


def test_a_heartbeat_that_moves_is_a_controller_that_lives(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    other.beats_for(clock, 1000)
    began_s, said = clock.now_s, []
    with pytest.raises(LockHeld) as refused:
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=said.append)
    text = str(refused.value)
    assert "host login7 (pid 4711, since 2026-11-30T21:00:00+00:00)" in text
    assert "its heartbeat moves" in text
    assert "kill 4711" in text
    assert "unlock" not in text, "that would make two of them"
    assert clock.now_s - began_s <= BEAT_S, "nobody waits longer than for one beat"
    assert len(said) == 1
    assert "login7" in said[0]
    assert f"up to {WATCH_S:g} s" in said[0]
    assert lock.holders(str(tmp_path)) == [other.holder]


def test_a_heartbeat_that_stands_still_is_taken_over(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    said: list[str] = []
    began_s = clock.now_s
    mine = ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=said.append)
    assert clock.now_s - began_s >= 3 * BEAT_S, "a beat or two may be late on a network folder"
    assert mine.took_over == other.holder
    assert [one.host for one in lock.holders(str(tmp_path))] == [socket.gethostname()]
    assert "taken over if it stands still" in said[0]
    assert "stood still" in said[1]
    assert mine.is_mine()
    mine.release()
    assert lock.holders(str(tmp_path)) == []


def test_one_late_beat_is_a_life(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    clock.at(WATCH_S - 3, other.heart.beat)
    with pytest.raises(LockHeld, match="heartbeat moves"):
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=lambda _: None)


def test_without_anybody_to_tell_nobody_waits(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    with pytest.raises(LockHeld, match="sidewinder unlock"):
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire()
    assert clock.now_s == 1000.0


def test_a_holder_without_a_heartbeat_is_left_to_a_person(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    heartbeat.forget(str(other.path))
    with pytest.raises(LockHeld, match=r"nobody can see.*sidewinder unlock"):
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=lambda _: None)
    assert clock.now_s == 1000.0


def test_clocks_of_hosts_are_never_compared(tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    """Its beats are files of the year 2000 or of 2100: what counts is that they change."""

    def beat_of_another_time() -> None:
        other.heart.beat()
        os.utime(heartbeat.beat_file(str(other.path)), (946684800, 946684800))

    clock.at(10, beat_of_another_time)
    with pytest.raises(LockHeld, match="heartbeat moves"):
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=lambda _: None)


@pytest.mark.parametrize("when", ["while both watch", "in the same moment"])
def test_of_two_hosts_that_watch_one_takes_over(when: str, tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    third = Elsewhere(tmp_path, "login8", pid=8)
    if when == "while both watch":
        clock.at(WATCH_S - 1, third.takes_it)
    else:
        clock.at(WATCH_S + SETTLE_S / 2, third.takes_it)  # it looked before we wrote, and wrote after
    with pytest.raises(LockHeld, match="login8"):
        ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause).acquire(announce=lambda _: None)
    assert [one.host for one in lock.holders(str(tmp_path))] == ["login8"]


def test_a_controller_that_slept_sees_that_it_was_taken_over(tmp_path: Path) -> None:
    mine = ControllerLock(str(tmp_path)).acquire()
    assert mine.is_mine()
    other = Elsewhere(tmp_path)
    other.takes_it()
    assert not mine.is_mine()
    mine.release()
    assert lock.holders(str(tmp_path)) == [other.holder], "its name is left alone"
    assert heartbeat.read(str(other.path)) is not None, "and its heartbeat"


@pytest.mark.parametrize("lives", [True, False])
def test_sidewinder_measure_on_another_host(lives: bool, tmp_path: Path, clock: Time) -> None:
    folder = tmp_path / "controller.lock.shared"
    folder.mkdir(parents=True)
    member = folder / "login7-4711-abc.json"
    member.write_bytes(Elsewhere(tmp_path).holder.encode())
    heart = Heart(str(member), lambda: True)
    heart.beat()
    if lives:
        clock.at(40, heart.beat)
    one = ControllerLock(str(tmp_path), now=clock.now, pause=clock.pause)
    if lives:
        with pytest.raises(LockHeld, match=r"login7.*heartbeat moves"):
            one.acquire(announce=lambda _: None)
    else:
        assert one.acquire(announce=lambda _: None).took_over is not None
        assert not list(folder.iterdir())
        one.release()


@pytest.mark.parametrize("lives", [True, False])
def test_unlock_does_not_strike_out_who_lives(lives: bool, tmp_path: Path, clock: Time, other: Elsewhere) -> None:
    said: list[str] = []
    if lives:
        other.beats_for(clock, 1000)
        with pytest.raises(LockHeld, match="heartbeat moves"):
            lock.break_lock(str(tmp_path), said.append, now=clock.now, pause=clock.pause)
        assert lock.holders(str(tmp_path)) == [other.holder]
    else:
        assert lock.break_lock(str(tmp_path), said.append, now=clock.now, pause=clock.pause) == [other.holder]
        assert not list(tmp_path.glob("*.beat"))
    assert "watching" in said[0]


# -- the holder's side ------------------------------------------------------------------------------------------------


def until(condition: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.005)


def test_it_beats_while_it_is_held_and_leaves_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "controller.lock")
    heart = Heart(path, lambda: True, every_s=0.01)
    heart.start()
    seen = {heartbeat.read(path)}
    until(lambda: len(seen) > 3 or seen.add(heartbeat.read(path)))
    heart.stop()
    assert not list(tmp_path.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name == "sidewinder-heartbeat"]


def test_it_stops_when_the_lock_is_another_s(tmp_path: Path) -> None:
    path = str(tmp_path / "controller.lock")
    lost: list[bool] = []
    heart = Heart(path, lambda: not lost, every_s=0.01)
    heart.start()
    lost.append(True)
    until(lambda: not [one for one in threading.enumerate() if one.name == "sidewinder-heartbeat"])
    content = heartbeat.read(path)
    heart.stop(remove=False)
    assert heartbeat.read(path) == content


def test_a_disk_that_refuses_costs_the_beat_only(tmp_path: Path) -> None:
    heart = Heart(str(tmp_path / "no folder" / "controller.lock"), lambda: True)
    heart.beat()
    heart.stop()


def test_a_lock_has_a_heartbeat_from_its_first_moment(tmp_path: Path) -> None:
    with ControllerLock(str(tmp_path)).acquire() as mine:
        assert heartbeat.read(mine.path) is not None
    with ControllerLock(str(tmp_path)).acquire(shared=True) as mine:
        (member,) = (tmp_path / "controller.lock.shared").glob("*.json")
        assert json.loads(member.read_bytes())["pid"]
        assert heartbeat.read(str(member)) is not None
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["controller.lock"]
