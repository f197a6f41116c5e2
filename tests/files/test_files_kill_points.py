"""Die at every file operation, by kill -9 and by power cut, start again, compare with a run that nobody disturbed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from files.helpers_files import (
    CAMPAIGN,
    UNSYNCED,
    Killed,
    MortalDisk,
    failed,
    hole,
    ok,
    plan_of,
    point,
    raw_result,
    status,
    tree,
)
from sidewinder.files import atomic, journal, plan, raw, records, schedule, shards
from sidewinder.files.done import Done
from sidewinder.model import AttemptId

Step = Callable[[str, atomic.FileOps], object]
SHARD = {"a": ok("a", 2.0), "b": failed("b"), "c": hole("c")}
FLIGHTS = [journal.claimed(AttemptId(run_id, 1), "pi5", "2026-11-30T00:00:00+00:00") for run_id in "abc"]


def _nothing(folder: str, ops: atomic.FileOps) -> None:
    pass


def _old_ok(folder: str, ops: atomic.FileOps) -> None:
    records.publish(folder, "pi5", "a", ok("a", 1.0, timestamp_utc="2026-11-30T00:00:00+00:00"), ops=ops)


def _old_shard(folder: str, ops: atomic.FileOps) -> None:
    shards.publish_records(folder, "pi5", "s", ["a", "b", "c"], {"a": ok("a", 1.0), "b": hole("b")}, ops=ops)


def _old_plan(folder: str, ops: atomic.FileOps) -> None:
    plan.publish(folder, plan_of(point("a")), ops=ops)


def _old_journal(folder: str, ops: atomic.FileOps) -> None:
    log = journal.Journal(folder, ops=ops)
    log.append_many(FLIGHTS)
    log.append_many({"event": "retry", "device": "pi5", "error": "connection lost " * 20} for _ in range(5))
    log.close()


def _shard(folder: str, ops: atomic.FileOps) -> None:
    shards.publish_records(folder, "pi5", "s", list("abc"), SHARD, ops=ops)


def _compact(folder: str, ops: atomic.FileOps) -> None:
    journal.compact(folder, limit_bytes=0, ops=ops)


SCENARIOS: dict[str, tuple[Step, Step]] = {
    "a first record": (_nothing, lambda folder, ops: records.publish(folder, "pi5", "a", ok("a", 2.0), ops=ops)),
    "a failure over nothing": (_nothing, lambda folder, ops: records.publish(folder, "pi5", "a", failed("a"), ops=ops)),
    "an ok over an ok": (_old_ok, lambda folder, ops: records.publish(folder, "pi5", "a", ok("a", 2.0), ops=ops)),
    "a failure over an ok": (_old_ok, lambda folder, ops: records.publish(folder, "pi5", "a", failed("a"), ops=ops)),
    "a first shard": (_nothing, _shard),
    "a shard over a shard": (_old_shard, _shard),
    "a first plan": (_nothing, lambda folder, ops: plan.publish(folder, plan_of(point("a"), point("b")), ops=ops)),
    "a changed plan": (_old_plan, lambda folder, ops: plan.publish(folder, plan_of(point("b")), ops=ops)),
    "a compacted journal": (_old_journal, _compact),
}


DEATHS = (
    "kill -9",
    "kill -9 in a write",
    "power cut loses names",
    "power cut loses names below superseded",
    "power cut loses data",
)


def _cases() -> Iterator[tuple[str, str]]:
    for name in SCENARIOS:
        for death in DEATHS:
            yield name, death


def _operations(scenario: str, folder: Path) -> int:
    before, step = SCENARIOS[scenario]
    before(str(folder), UNSYNCED)
    disk = MortalDisk()
    step(str(folder), disk)
    return len(disk.log)


def _die(disk: MortalDisk, step: Callable[[], object], death: str) -> None:
    with pytest.raises(Killed):
        step()
    _cut_power(disk, death)


def _cut_power(disk: MortalDisk, death: str) -> None:
    if death == "power cut loses names":
        disk.lose_names()
    elif death == "power cut loses names below superseded":
        disk.lose_names("/superseded/")  # folders come to the disk in any order
    elif death == "power cut loses data":
        disk.lose_data()


def _only_whole_files(folder: Path) -> None:
    for path in folder.rglob("*.json"):
        if not path.name.startswith("."):
            json.loads(path.read_bytes())


@pytest.mark.parametrize(("scenario", "death"), list(_cases()))
def test_every_kill_point(scenario: str, death: str, tmp_path: Path) -> None:
    before, step = SCENARIOS[scenario]
    undisturbed = tmp_path / "undisturbed"
    count = _operations(scenario, undisturbed)
    assert count >= (0 if scenario == "a failure over an ok" else 3)
    expected = tree(undisturbed)
    for at in range(count):
        folder = tmp_path / f"at{at}"
        before(str(folder), UNSYNCED)
        disk = MortalDisk(at, half=death == "kill -9 in a write")
        _die(disk, lambda folder=folder, disk=disk: step(str(folder), disk), death)  # type: ignore[misc]

        _only_whole_files(folder)
        assert all(record.run_id in "abc" for record in records.find(str(folder)))
        if before in (_old_ok, _old_shard):
            assert status(folder, "a") == "ok", f"an ok record was lost at operation {at}"
            new = json.loads((folder / "records/pi5/a.json").read_bytes())["metrics"]["x"] == 2.0
            kept = [json.loads(path.read_bytes())["metrics"]["x"] for path in folder.glob("superseded/pi5/*.json")]
            assert not new or kept == [1.0], f"the old ok is gone at operation {at}"

        atomic.sweep(str(folder))  # what the next controller does when it has the lock
        step(str(folder), UNSYNCED)
        assert tree(folder) == expected, f"after a death at operation {at}: {disk.log}"


@pytest.mark.parametrize(("scenario", "death"), list(_cases()))
def test_what_has_returned_is_on_the_disk(scenario: str, death: str, tmp_path: Path) -> None:
    before, step = SCENARIOS[scenario]
    before(str(tmp_path), UNSYNCED)
    disk = MortalDisk()
    step(str(tmp_path), disk)
    expected = tree(tmp_path)
    _cut_power(disk, death)
    assert tree(tmp_path) == expected


@pytest.mark.parametrize("death", ["kill -9", "kill -9 in a write", "power cut loses names", "power cut loses data"])
def test_a_shard_that_died_says_only_what_is_on_disk(death: str, tmp_path: Path) -> None:
    plan_ = plan_of(point("a"), point("b"), point("c"), points_per_job=3)
    for at in range(_operations("a first shard", tmp_path / "undisturbed")):
        folder = tmp_path / f"at{at}"
        disk = MortalDisk(at, half=death == "kill -9 in a write")
        _die(disk, lambda folder=folder, disk=disk: _shard(str(folder), disk), death)  # type: ignore[misc]
        done = Done(str(folder), plan_)
        for run_id in "abc":
            assert done.status(run_id) == status(folder, run_id)


@pytest.mark.parametrize("death", ["kill -9", "kill -9 in a write", "power cut loses names", "power cut loses data"])
def test_a_synced_claim_survives_every_death(death: str, tmp_path: Path) -> None:
    def sweep(folder: str, ops: atomic.FileOps, kept: list[str]) -> None:
        log = journal.Journal(folder, ops=ops)
        for entry in FLIGHTS:
            log.append(entry, sync=True)
            kept.append(entry["run_id"])
        log.close()

    disk = MortalDisk()
    sweep(str(tmp_path / "undisturbed"), disk, [])
    for at in range(len(disk.log)):
        folder, kept = tmp_path / f"at{at}", []
        mortal = MortalDisk(at, half=death == "kill -9 in a write")
        _die(mortal, lambda f=folder, d=mortal, k=kept: sweep(str(f), d, k), death)  # type: ignore[misc]
        seen = journal.replay(str(folder))
        assert set(kept) <= set(seen.in_flight), f"a synced claim was lost at operation {at}"
        assert seen.torn <= 1

        # The next controller appends behind whatever is there; the torn line costs itself alone.
        log = journal.Journal(str(folder))
        log.append(journal.claimed(AttemptId("z", 7), "pi5", "2026-11-30T00:00:00+00:00"))
        log.close()
        after = journal.replay(str(folder))
        assert after.highest["z"] == 7
        assert set(kept) <= set(after.in_flight)


def test_the_campaign_of_a_new_folder_is_made_once(tmp_path: Path) -> None:
    """Whatever died, all later plans of the folder have the campaign that a reader may have seen first."""
    fresh = replace(plan_of(point("a")), campaign="")
    disk = MortalDisk()
    plan.publish(str(tmp_path / "undisturbed"), fresh, ops=disk)
    for at in range(len(disk.log)):
        folder = str(tmp_path / f"at{at}")
        with pytest.raises(Killed):
            plan.publish(folder, fresh, ops=MortalDisk(at))
        try:
            seen = plan.read(folder).campaign
        except plan.ConfigError:
            seen = None
        again = plan.publish(folder, fresh).campaign
        assert seen in (None, again)
        assert again not in ("", CAMPAIGN)


def test_raw_files_and_schedule_are_whole_or_absent_after_a_kill(tmp_path: Path) -> None:
    def step(folder: str, ops: atomic.FileOps) -> None:
        raw.store(folder, "pi5", "a", raw_result(b"out\n", b"err\n"), n=2, ops=ops)
        schedule.publish(folder, {"ok": 1}, ops=ops)

    disk = MortalDisk()
    step(str(tmp_path / "undisturbed"), disk)
    expected = tree(tmp_path / "undisturbed")
    assert set(expected) == {"raw/pi5/a/2.stdout", "raw/pi5/a/2.stderr", "schedule.json"}
    for at in range(len(disk.log)):
        folder = tmp_path / f"at{at}"
        with pytest.raises(Killed):
            step(str(folder), MortalDisk(at, half=True))
        whole = {name: data for name, data in tree(folder).items() if not atomic.is_temp(name.rpartition("/")[2])}
        assert whole.items() <= expected.items()
