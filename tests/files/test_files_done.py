"""Done: one decision, the same for one point and for many, with and without manifests."""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path

import pytest

from files.helpers_files import UNSYNCED, failed, hole, ok, plan_of, point, status
from sidewinder.files import done, records, shards
from sidewinder.files.done import Done


@pytest.mark.parametrize("accepted", [None, "", "known bug of the driver"])
@pytest.mark.parametrize("state", ["ok", "failed", "hole", "broken", "missing"])
def test_the_decision(state: str, accepted: str | None, tmp_path: Path) -> None:
    record = {"ok": ok("a"), "failed": failed("a"), "hole": hole("a")}.get(state)
    if record is not None:
        records.publish(str(tmp_path), "pi5", "a", record, ops=UNSYNCED)
    elif state == "broken":
        (tmp_path / "records/pi5").mkdir(parents=True)
        (tmp_path / "records/pi5/a.json").write_text("{")
    accept = {} if accepted is None else {"a": accepted}
    expected = state == "ok" or (bool(accepted) and state in ("failed", "hole"))
    assert done.is_done(str(tmp_path), "pi5", "a", accept) is expected
    assert Done(str(tmp_path), plan_of(point("a"), accept=accept)).is_done("a") is expected


def test_twenty_five_points_of_which_twenty_are_done(tmp_path: Path) -> None:
    plan = plan_of(*(point(f"p{i}") for i in range(25)))
    for i in range(20):
        records.publish(str(tmp_path), "pi5", f"p{i}", ok(f"p{i}"), ops=UNSYNCED)
    records.publish(str(tmp_path), "pi5", "p20", failed("p20"), ops=UNSYNCED)
    assert list(Done(str(tmp_path), plan).open_points()) == [f"p{i}" for i in range(20, 25)]


CHANGES = {
    "nothing": lambda path: None,
    "deleted": lambda path: path.unlink(),
    "touched": lambda path: os.utime(path, (1, 1)),
    "set to failed by hand": lambda path: path.write_text(json.dumps(failed(path.stem))),
    "set to ok by hand": lambda path: path.write_text(json.dumps(ok(path.stem, 9.0))),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "same length, other content": lambda path: path.write_bytes(path.read_bytes().replace(b'"ok"', b'"no"')),
    "another point's": lambda path: path.write_text(json.dumps(ok("other"))),
}


@pytest.mark.parametrize(("run_id", "change"), list(product("abc", CHANGES)))
def test_where_manifest_and_record_disagree_the_record_wins(run_id: str, change: str, tmp_path: Path) -> None:
    new = {"a": ok("a"), "b": failed("b"), "c": hole("c")}
    shards.publish_records(str(tmp_path), "pi5", "s", list("abc"), new, ops=UNSYNCED)
    CHANGES[change](tmp_path / f"records/pi5/{run_id}.json")
    look = Done(str(tmp_path), plan_of(*map(point, "abc"), points_per_job=3))
    assert [look.status(each) for each in "abc"] == [status(tmp_path, each) for each in "abc"]


def test_what_a_manifest_vouches_for_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = {run_id: ok(run_id) for run_id in "abc"}
    shards.publish_records(str(tmp_path), "pi5", "s", list("abc"), new, ops=UNSYNCED)
    os.utime(tmp_path / "records/pi5/b.json", (1, 1))

    def no_parsing(*_: object) -> str:
        raise AssertionError("a record was parsed although its manifest vouches for it")

    monkeypatch.setattr(done, "status_of", no_parsing)
    monkeypatch.setattr(done, "status_in", no_parsing)
    assert not list(Done(str(tmp_path), plan_of(*map(point, "abc"))).open_points())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"schema_version":1,"points":{"a":["ok"]}}', "\0\0"])
def test_a_broken_manifest_is_no_witness(content: str, tmp_path: Path) -> None:
    shards.publish_records(str(tmp_path), "pi5", "s", ["a"], {"a": ok("a")}, ops=UNSYNCED)
    (tmp_path / "shards/pi5/s.json").write_text(content)
    assert Done(str(tmp_path), plan_of(point("a"), point("b"))).status("a") == "ok"


def test_a_resumed_shard_lists_old_and_new_points(tmp_path: Path) -> None:
    shards.publish_records(str(tmp_path), "pi5", "s", list("abc"), {"a": ok("a"), "b": failed("b")}, ops=UNSYNCED)
    assert set(shards.read(str(tmp_path / "shards/pi5/s.json"))) == {"a", "b"}
    shards.publish_records(str(tmp_path), "pi5", "s", list("abc"), {"b": ok("b"), "c": hole("c")}, ops=UNSYNCED)
    entries = shards.read(str(tmp_path / "shards/pi5/s.json"))
    assert {run_id: entry.status for run_id, entry in entries.items()} == {"a": "ok", "b": "ok", "c": "hole"}


def test_a_look_is_taken_once(tmp_path: Path) -> None:
    look = Done(str(tmp_path), plan_of(point("a")))
    assert not look.is_done("a")
    records.publish(str(tmp_path), "pi5", "a", ok("a"), ops=UNSYNCED)
    assert not look.is_done("a")
    assert Done(str(tmp_path), plan_of(point("a"))).is_done("a")
