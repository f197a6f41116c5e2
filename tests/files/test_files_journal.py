"""Journal and ledger: group commit, torn lines, what a replay knows."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from files.helpers_files import UNSYNCED
from sidewinder.errors import PublishError
from sidewinder.files import appendlog, journal
from sidewinder.files.atomic import FileOps
from sidewinder.files.ledger import Ledger
from sidewinder.model import AttemptId

UTC = "2026-11-30T00:00:00+00:00"


def claimed(run_id: str, n: int, device: str = "pi5") -> dict[str, object]:
    return journal.claimed(AttemptId(run_id, n), device, UTC)


def ended(run_id: str, n: int, device: str = "pi5") -> dict[str, object]:
    return journal.ended(AttemptId(run_id, n), device, "transport", UTC)


def write(folder: Path, *entries: dict[str, object]) -> None:
    log = journal.Journal(str(folder), ops=UNSYNCED)
    log.append_many(entries)
    log.close()


class TestReplay:
    def test_nothing_yet(self, tmp_path: Path) -> None:
        assert journal.replay(str(tmp_path)) == journal.Replay()

    def test_flights_and_highest_attempts(self, tmp_path: Path) -> None:
        write(
            tmp_path, claimed("a", 1), ended("a", 1), claimed("a", 2), claimed("b", 1), claimed("c", 3), ended("c", 3)
        )
        seen = journal.replay(str(tmp_path))
        assert seen.in_flight == {"a": journal.Flight(2, "pi5"), "b": journal.Flight(1, "pi5")}
        assert seen.highest == {"a": 2, "b": 1, "c": 3}

    def test_a_late_end_of_an_older_attempt_hides_nothing(self, tmp_path: Path) -> None:
        write(tmp_path, claimed("a", 1), claimed("a", 2), ended("a", 1))
        assert journal.replay(str(tmp_path)).in_flight == {"a": journal.Flight(2, "pi5")}

    def test_the_boot_of_an_attempt_is_the_last_that_was_said_of_it(self, tmp_path: Path) -> None:
        claim = journal.claimed(AttemptId("a", 1), "pod", UTC, boot="x")
        write(tmp_path, claim, journal.adopted(AttemptId("a", 1), "pod", UTC))
        assert journal.replay(str(tmp_path)).in_flight == {"a": journal.Flight(1, "pod", "x")}
        write(tmp_path, journal.boot(AttemptId("a", 1), "pod", "y", UTC))
        assert journal.replay(str(tmp_path)).in_flight == {"a": journal.Flight(1, "pod", "y")}
        journal.compact(str(tmp_path), limit_bytes=0)
        assert journal.replay(str(tmp_path)).in_flight == {"a": journal.Flight(1, "pod", "y")}
        write(tmp_path, claimed("a", 2))
        assert journal.replay(str(tmp_path)).in_flight == {"a": journal.Flight(2, "pi5")}, "another attempt's boot"

    def test_an_attempt_that_died_is_not_asked_for_and_is_still_to_be_told_of(self, tmp_path: Path) -> None:
        dead = journal.died(AttemptId("a", 2), "pod", UTC, cause="evicted", proof="container")
        write(tmp_path, claimed("a", 1), claimed("a", 2), dead)
        seen = journal.replay(str(tmp_path))
        assert (seen.in_flight, seen.highest, seen.since) == ({}, {"a": 2}, {"a": 1})
        journal.compact(str(tmp_path), limit_bytes=0)
        seen = journal.replay(str(tmp_path))
        assert (seen.in_flight, seen.highest, seen.since) == ({}, {"a": 2}, {"a": 1})
        write(tmp_path, claimed("a", 3), journal.died(AttemptId("a", 2), "pod", UTC))
        seen = journal.replay(str(tmp_path))
        assert (list(seen.in_flight), seen.since) == (["a"], {"a": 1}), "a late line hides nothing"
        write(tmp_path, ended("a", 3))
        assert journal.replay(str(tmp_path)).since == {}, "its record has told"

    def test_an_adopted_attempt_is_in_flight(self, tmp_path: Path) -> None:
        write(tmp_path, ended("a", 3), journal.adopted(AttemptId("a", 4), "pi5", UTC))
        seen = journal.replay(str(tmp_path))
        assert (seen.in_flight["a"].n, seen.highest["a"]) == (4, 4)

    def test_the_last_word_about_a_breaker_counts(self, tmp_path: Path) -> None:
        write(tmp_path, {"event": "breaker", "device": "pi5", "state": "open"})
        write(tmp_path, {"event": "breaker", "device": "pi5", "state": "closed"})
        assert journal.replay(str(tmp_path)).breakers["pi5"]["state"] == "closed"

    @pytest.mark.parametrize(
        "junk",
        [
            b'{"event":"claimed","run',
            b"\0" * 40,
            b"\xff\xfe",
            b"[]",
            b'{"event":"claimed","run_id":"x"}',
            b"{}",
            b"[" * 9999,
        ],
    )
    def test_a_torn_line_costs_that_line(self, junk: bytes, tmp_path: Path) -> None:
        write(tmp_path, claimed("a", 1))
        with open(tmp_path / "journal.jsonl", "ab") as file:
            file.write(junk)  # no line end: the next writer must not be glued to it
        write(tmp_path, claimed("b", 1))
        seen = journal.replay(str(tmp_path))
        assert set(seen.in_flight) == {"a", "b"}
        assert seen.torn == 1

    def test_events_for_people_are_skipped(self, tmp_path: Path) -> None:
        write(tmp_path, {"event": "moved", "run_id": "a", "to": "pi6"}, claimed("a", 1))
        seen = journal.replay(str(tmp_path))
        assert (seen.torn, seen.lines) == (0, 2)


class TestCompaction:
    def test_it_keeps_what_decides(self, tmp_path: Path) -> None:
        for n in range(1, 30):
            write(tmp_path, claimed("a", n), ended("a", n))
        write(tmp_path, claimed("b", 2), {"event": "breaker", "device": "pi5", "state": "open"}, claimed("a", 30))
        before = journal.replay(str(tmp_path))
        assert journal.compact(str(tmp_path), limit_bytes=100)
        after = journal.replay(str(tmp_path))
        assert (after.in_flight, after.highest, after.breakers) == (before.in_flight, before.highest, before.breakers)
        assert (tmp_path / "journal.old.jsonl").stat().st_size > 4 * (tmp_path / "journal.jsonl").stat().st_size

    def test_not_before_its_time_and_not_for_nothing(self, tmp_path: Path) -> None:
        assert not journal.compact(str(tmp_path))
        write(tmp_path, claimed("a", 1))
        assert not journal.compact(str(tmp_path))
        assert not journal.compact(str(tmp_path), limit_bytes=0)


class TestGroupCommit:
    def test_waiting_lines_share_one_sync(self, tmp_path: Path) -> None:
        class SlowDisk(FileOps):
            def __init__(self) -> None:
                self.syncs = 0
                self.in_first, self.go_on = threading.Event(), threading.Event()

            def fsync(self, fd: int) -> None:
                self.syncs += 1
                if self.syncs == 1:
                    self.in_first.set()
                    assert self.go_on.wait(20)

        disk = SlowDisk()
        log = journal.Journal(str(tmp_path), ops=disk)
        threads = [threading.Thread(target=log.append, args=(claimed(f"r{i}", 1),)) for i in range(20)]
        threads[0].start()
        assert disk.in_first.wait(20)
        for thread in threads[1:]:
            thread.start()
        while log._written < len(threads):  # they write while the disk is busy with the first
            threads[-1].join(0.001)
        assert all(thread.is_alive() for thread in threads), "a line was called safe before any sync ended"
        disk.go_on.set()
        for thread in threads:
            thread.join(20)
        assert disk.syncs == 2
        assert len(journal.replay(str(tmp_path)).in_flight) == len(threads)

    def test_lines_without_sync_wait_for_flush(self, tmp_path: Path) -> None:
        class Counting(FileOps):
            syncs = 0

            def fsync(self, fd: int) -> None:
                self.syncs += 1

        disk = Counting()
        log = appendlog.AppendLog(str(tmp_path / "x.jsonl"), ops=disk)
        for i in range(5):
            log.append({"i": i}, sync=False)
        assert disk.syncs == 0
        log.flush()
        log.flush()
        assert disk.syncs == 1

    def test_a_failed_sync_is_never_made_good_by_a_later_one(self, tmp_path: Path) -> None:
        class Failing(FileOps):
            failures = 1

            def fsync(self, fd: int) -> None:
                if self.failures:
                    self.failures -= 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))

        log = journal.Journal(str(tmp_path), ops=Failing())
        for _ in range(2):
            with pytest.raises(PublishError, match=r"journal .*journal\.jsonl.*EIO"):
                log.append(claimed("a", 1))

    def test_a_full_disk_tears_one_line_and_no_more(self, tmp_path: Path) -> None:
        class Full(FileOps):
            room = 10_000

            def write(self, fd: int, data: bytes) -> int:
                if not self.room:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                taken = os.write(fd, data[: self.room])
                self.room -= taken
                return taken

        disk = Full()
        log = journal.Journal(str(tmp_path), ops=disk)
        log.append(claimed("a", 1))
        disk.room = 20
        with pytest.raises(PublishError, match="the disk is full"):
            log.append(claimed("b", 1))
        disk.room = 10_000  # somebody freed space
        log.append(claimed("c", 1))
        seen = journal.replay(str(tmp_path))
        assert set(seen.in_flight) == {"a", "c"}
        assert seen.torn == 1


def test_several_processes_append_whole_lines(tmp_path: Path) -> None:
    """`sidewinder measure` under Snakemake's own executor: several write one journal."""
    code = (
        "import sys; from sidewinder.files import journal\n"
        "log = journal.Journal(sys.argv[1])\n"
        "for i in range(100): log.append({'event': 'note', 'who': sys.argv[2], 'i': i, 'text': 'x' * 500}, False)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(who)]) for who in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = (tmp_path / "journal.jsonl").read_bytes().splitlines()
    seen = {(entry["who"], entry["i"]) for entry in map(json.loads, lines)}
    assert len(lines) == len(seen) == 300


def test_the_ledger_has_the_keys_of_m119(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    ledger.transport_failure(
        run_id="a", device="pi5", model="m", mode="throughput", attempt=1, max_attempts=3, error="x" * 900,
        breaker_opened=False, utc=UTC,
    )  # fmt: skip
    ledger.failover(
        run_id="a", moved_run_id="b", from_device="pi5", to_device="pi6", model="m", reason="down", note="", utc=UTC
    )
    failure, failover = (json.loads(line) for line in (tmp_path / "retries.jsonl").read_text().splitlines())
    assert failure.keys() >= {
        "event",
        "device",
        "model",
        "mode",
        "attempt",
        "max_attempts",
        "error",
        "breaker_opened",
        "utc",
    }
    assert (failure["event"], failure["breaker_opened"], len(failure["error"])) == ("transport_failure", False, 600)
    assert failover.keys() >= {"event", "run_id", "moved_run_id", "from_device", "to_device", "model", "reason", "note"}
