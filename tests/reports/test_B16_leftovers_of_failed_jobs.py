"""B16: what a failed or killed measurement leaves behind is never taken for its result."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from files.helpers_files import failed, ok, plan_of, point
from sidewinder.files import records
from sidewinder.files.done import Done
from sidewinder.files.lock import ControllerLock
from sidewinder.files.summary import summarise

# A controller that is stopped between the write and the rename of its record.
STUCK = """
import sys
from files.helpers_files import ok
from sidewinder.files import records
from sidewinder.files.atomic import FileOps

class Stuck(FileOps):
    def rename(self, source, target):
        print("written", flush=True)
        sys.stdin.read()

records.publish(sys.argv[1], "pi5", "b", ok("b"), ops=Stuck())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_record_that_was_written_but_not_published(how: signal.Signals, tmp_path: Path) -> None:
    controller = subprocess.Popen(
        [sys.executable, "-c", STUCK, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=Path(__file__).resolve().parents[1],
        text=True,
    )
    assert controller.stdout is not None
    assert controller.stdout.readline() == "written\n"
    (temp,) = (tmp_path / "records/pi5").iterdir()
    assert json.loads(temp.read_bytes())["status"] == "ok"  # whole, and yet not published
    controller.send_signal(how)
    controller.communicate()
    plan = plan_of(point("b"))
    assert list(Done(str(tmp_path), plan).open_points()) == ["b"]
    assert list(records.find(str(tmp_path))) == []
    (open_point,) = summarise(str(tmp_path), plan).holes
    assert open_point.status == "missing"
    ControllerLock(str(tmp_path)).acquire().release()
    assert not list((tmp_path / "records/pi5").iterdir())


def test_half_a_record_a_failed_one_and_half_a_shard_are_open(tmp_path: Path) -> None:
    whole = records.encode(ok("a"))
    (tmp_path / "records/pi5").mkdir(parents=True)
    (tmp_path / "records/pi5/a.json").write_bytes(whole[: len(whole) // 2])
    records.publish(str(tmp_path), "pi5", "b", failed("b"))
    records.publish_many(str(tmp_path), [("pi5", "c", ok("c"))])  # of a shard that never got its manifest
    plan = plan_of(*map(point, "abcd"), points_per_job=4)
    assert list(Done(str(tmp_path), plan).open_points()) == ["a", "b", "d"]
    assert [record.run_id for record in records.find(str(tmp_path)) if record.status == "ok"] == ["c"]
