"""Outputs of a rule on their way home: whole, verified, all of them or none, and under declared names only."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import TransportError
from sidewinder.files.arrival import Arrival
from sidewinder.files.atomic import FileOps


def file(path: str, content: bytes, number: int = 0, **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"path": path, "kind": "file", "number": number, "bytes": len(content), "sha256": digest, **more}


def folder(path: str) -> dict[str, Any]:
    return {"path": path, "kind": "folder"}


def arrival(home: Path, *outputs: str, logs: tuple[str, ...] = (), **more: Any) -> Arrival:
    return Arrival(str(home), outputs, logs, where="rule-1 on pi5", **more)


def all_of(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def test_nothing_has_its_name_before_everything_is_here(tmp_path: Path) -> None:
    one = arrival(tmp_path, "a", "d/b", logs=("l",))
    one.expect([file("l", b"log", 0), file("a", b"first", 1), file("d/b", b"second", 2)])
    one.take(0, b"log")
    one.take(1, b"first")
    one.take(2, b"sec")
    assert {name for name in all_of(tmp_path) if not name.endswith(".partial")} == set()
    assert one.have(2) == 3
    one.take(2, b"ond")
    one.place(outputs=True)
    assert all_of(tmp_path) == {"a": b"first", "d/b": b"second", "l": b"log"}


def test_of_a_failed_command_only_logs_get_their_names(tmp_path: Path) -> None:
    one = arrival(tmp_path, "d", logs=("d/log", "other.log"))
    one.expect([file("d/log", b"x", 0)])
    one.take(0, b"x")
    one.place(outputs=False)
    one.discard()
    assert all_of(tmp_path) == {"d/log": b"x"}


def test_what_arrived_damaged_is_brought_again_from_its_start(tmp_path: Path) -> None:
    one = arrival(tmp_path, "a")
    one.expect([file("a", b"right")])
    with pytest.raises(TransportError, match="rule-1 on pi5: a arrived damaged: 5 bytes"):
        one.take(0, b"wrong")
    assert one.have(0) == 0
    with pytest.raises(TransportError, match="7 bytes"):
        one.take(0, b"rightoo")
    one.take(0, b"right")
    one.place(outputs=True)
    assert all_of(tmp_path) == {"a": b"right"}


def test_the_same_list_again_keeps_what_is_here_and_another_does_not(tmp_path: Path) -> None:
    one = arrival(tmp_path, "a")
    one.expect([file("a", b"12345")])
    one.take(0, b"123")
    one.expect([file("a", b"12345")])
    assert one.have(0) == 3
    one.expect([file("a", b"54321")])
    assert one.have(0) == 0
    one.take(0, b"54321")
    one.place(outputs=True)
    assert all_of(tmp_path) == {"a": b"54321"}


def test_what_a_killed_controller_left_is_overwritten(tmp_path: Path) -> None:
    left = arrival(tmp_path, "a", "d")
    left.expect([file("a", b"12345", 0), folder("d"), file("d/x", b"x", 1)])
    left.take(0, b"123")
    left.take(1, b"x")
    assert len(list(tmp_path.iterdir())) == 2
    one = arrival(tmp_path, "a", "d")
    one.expect([file("a", b"abc", 0), folder("d")])
    one.take(0, b"abc")
    one.place(outputs=True)
    assert all_of(tmp_path) == {"a": b"abc"}
    assert sorted(os.listdir(tmp_path)) == ["a", "d"]


def test_an_older_output_is_replaced_whatever_it_is(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "old").touch()
    (tmp_path / "was-folder").mkdir()
    one = arrival(tmp_path, "d", "was-folder")
    one.expect([folder("d"), file("d/new", b"n", 0), file("was-folder", b"", 1)])
    one.take(0, b"n")
    one.place(outputs=True)
    assert all_of(tmp_path) == {"d/new": b"n", "was-folder": b""}


def test_names_that_differ_behind_their_60th_character_do_not_meet(tmp_path: Path) -> None:
    names = ["x" * 200 + end for end in "ab"]
    one = arrival(tmp_path, *names)
    one.expect([file(name, name[-1:].encode(), i) for i, name in enumerate(names)])
    for i, name in enumerate(names):
        one.take(i, name[-1:].encode())
    one.place(outputs=True)
    assert all_of(tmp_path) == {names[0]: b"a", names[1]: b"b"}


@pytest.mark.parametrize(
    "entries",
    [
        [file("../a", b"x")],
        [file("/etc/a", b"x")],
        [file("b", b"x")],
        [file("ab", b"x")],
        [file("./a", b"x")],
        [folder("a"), file("a/../../x", b"x")],
        [file("a/x", b"x")],
        [folder("a"), {"path": "a/l", "kind": "link", "link": "../x"}],
        [folder("a"), {"path": "a/l", "kind": "link", "link": "/etc/passwd"}],
        [{"path": "a", "kind": "link", "link": "x"}],
    ],
    ids=lambda entries: entries[-1]["path"] + entries[-1].get("link", ""),
)
def test_a_device_fills_declared_names_and_nothing_else(entries: list[dict[str, Any]], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(TransportError, match="the device sent"):
        arrival(home, "a").expect(entries)
    assert all_of(tmp_path) == {}


def test_nothing_is_written_through_a_link_that_a_device_sent(tmp_path: Path) -> None:
    """`self` is the folder, `self/..` the one above: each by itself looks as if it stayed inside."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    one = arrival(home, "a")
    entries = [
        folder("a"),
        {"path": "a/self", "kind": "link", "link": "./b/.."},
        file("a/self/x", b"x"),
    ]
    try:
        one.expect(entries)
        one.take(0, b"x")
        one.place(outputs=True)
    except (OSError, TransportError):
        pass
    assert {name for name in all_of(tmp_path) if not name.startswith("home/")} == set()


def test_dates_and_permissions_are_those_of_this_machine(tmp_path: Path) -> None:
    was = os.umask(0o027)
    try:
        before_s = time.time()
        one = arrival(tmp_path, "prog", "text")
        one.expect([file("prog", b"p", 0, executable=True), file("text", b"t", 1, executable=False)])
        one.take(0, b"p")
        one.take(1, b"t")
        one.place(outputs=True)
    finally:
        os.umask(was)
    prog, text = (tmp_path / "prog").stat(), (tmp_path / "text").stat()
    assert (oct(prog.st_mode & 0o777), oct(text.st_mode & 0o777)) == ("0o750", "0o640")
    assert before_s - 1 <= text.st_mtime <= time.time() + 1


class FullDisk(FileOps):
    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, fd: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = super().write(fd, data[: self.room])
        self.room -= taken
        return taken


def test_a_full_disk_here_leaves_no_output_and_no_temp(tmp_path: Path) -> None:
    one = arrival(tmp_path, "a", "b", ops=FullDisk(6))
    one.expect([file("a", b"1234", 0), file("b", b"5678", 1)])
    one.take(0, b"1234")
    with pytest.raises(OSError, match="No space"):
        one.take(1, b"5678")
    one.discard()
    assert all_of(tmp_path) == {}


def test_data_is_on_the_disk_before_any_name_is(tmp_path: Path) -> None:
    done: list[str] = []

    class Told(FileOps):
        def fsync(self, fd: int) -> None:
            done.append("fsync")
            super().fsync(fd)

        def sync_tree(self, path: str) -> bool:
            done.append("sync_tree")
            return False  # a system that has no such thing: each file by itself

        def rename(self, source: str, target: str) -> None:
            done.append(f"name {os.path.basename(target)}")
            super().rename(source, target)

        def fsync_dir(self, path: str) -> None:
            done.append("folder")
            super().fsync_dir(path)

    one = arrival(tmp_path, "a", "d", ops=Told())
    one.expect([file("a", b"1", 0), folder("d"), file("d/b", b"2", 1), file("d/c", b"3", 2)])
    for number, data in enumerate((b"1", b"2", b"3")):
        one.take(number, data)
    assert done == ["fsync"]
    one.place(outputs=True)
    assert done == ["fsync", "sync_tree", "fsync", "fsync", "folder", "name a", "name d", "folder"]
