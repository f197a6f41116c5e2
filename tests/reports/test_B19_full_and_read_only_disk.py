"""B19: a disk that is full or read-only never makes a point done, says so, and loses nothing.

The part of the files room: real full file systems; that the sweep stops and exits non-zero is tested with the engine.
"""

from __future__ import annotations

from pathlib import Path

from files.helpers_small_disk import run_on_small_disk

PROLOGUE = """
import json, os, subprocess, sys
from files.helpers_files import failed, ok, plan_of, point, status
from sidewinder.errors import PublishError
from sidewinder.files import journal, markers, plan, records, shards
from sidewinder.files.done import Done
from sidewinder.files.lock import ControllerLock
from sidewinder.model import AttemptId
disk = sys.argv[1]
folder = disk + "/runs"

def whole():
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".json"):
                json.load(open(os.path.join(where, name)))
            assert not name.endswith(".partial"), name

def fill():
    with open(disk + "/ballast", "wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(1024))
        except OSError:
            pass

def free():
    os.unlink(disk + "/ballast")
"""


def test_a_full_disk_loses_nothing_and_resume_finishes(tmp_path: Path) -> None:
    script = """
records.publish(folder, "pi5", "a", ok("a", 1.0))
log = journal.Journal(folder)
log.append(journal.claimed(AttemptId("a", 1), "pi5", "now"))
fill()
big = {"text": "x" * 100_000}
for step in (
    lambda: records.publish(folder, "pi5", "a", ok("a", 2.0, **big)),
    lambda: records.publish(folder, "pi5", "b", ok("b", **big)),
    lambda: records.publish_many(folder, [("pi5", r, ok(r, **big)) for r in "bc"]),
    lambda: shards.publish_records(folder, "pi5", "s", ["b"], {"b": ok("b", **big)}),
    lambda: plan.publish(folder, plan_of(*(point(f"p{i}") for i in range(3000)))),
    lambda: [log.append(journal.claimed(AttemptId("b", 1), "pi5", "now", **big)) for _ in range(9)],
):
    try:
        step()
    except PublishError as error:
        assert "the disk is full" in str(error) and folder in str(error), error
        print(error)
    else:
        raise AssertionError("a full disk went unnoticed")
whole()
assert status(folder, "a") == "ok" and status(folder, "b") == "missing"
assert list(Done(folder, plan_of(point("a"), point("b"))).open_points()) == ["b"]
free()
log.append(journal.claimed(AttemptId("c", 1), "pi5", "now"))
seen = journal.replay(folder)
assert {"a", "c"} <= set(seen.in_flight) and seen.torn <= 1, seen
for run_id in "ab":
    assert records.publish(folder, "pi5", run_id, ok(run_id, 2.0)) == "published"
assert not list(Done(folder, plan_of(point("a"), point("b"))).open_points())
whole()
"""
    said = run_on_small_disk(PROLOGUE + script, tmp_path)
    assert len(said.splitlines()) == 6
    assert all("free some space and run the same command again" in line for line in said.splitlines())


def test_no_inodes_left(tmp_path: Path) -> None:
    script = """
os.mkdir(folder)
published = []
try:
    for i in range(1000):
        records.publish(folder, "pi5", f"p{i}", ok(f"p{i}"))
        published.append(f"p{i}")
except PublishError as error:
    print(error)
whole()
assert published and all(status(folder, run_id) == "ok" for run_id in published)
"""
    assert "(ENOSPC)" in run_on_small_disk(PROLOGUE + script, tmp_path, inodes=30)


def test_a_read_only_folder_is_noticed_before_anything_is_measured(tmp_path: Path) -> None:
    script = """
made = plan.publish(folder, plan_of(point("a")))
records.publish(folder, "pi5", "a", failed("a"))
subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
assert plan.publish(folder, plan_of(point("a"))) == made  # unchanged: a dry run reads, and need not write
record = folder + "/records/pi5/a.json"
for step in (
    lambda: ControllerLock(folder).acquire(),
    lambda: ControllerLock(folder).acquire(shared=True),
    lambda: plan.publish(folder, plan_of(point("b"))),
    lambda: records.publish(folder, "pi5", "a", ok("a")),
    lambda: journal.Journal(folder).append({"event": "note"}),
    lambda: markers.open_marker(record, record + ".open", False),
):
    try:
        step()
    except PublishError as error:
        assert "read-only" in str(error), error
        print(error)
    else:
        raise AssertionError("a read-only disk went unnoticed")
assert status(folder, "a") == "failed"
assert list(Done(folder, made).open_points()) == ["a"]
"""
    assert len(run_on_small_disk(PROLOGUE + script, tmp_path).splitlines()) == 6
