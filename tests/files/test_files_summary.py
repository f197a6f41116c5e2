"""Summary, raw output and markers: what people and Snakemake are told."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from files.helpers_files import UNSYNCED, failed, hole, ok, plan_of, point, raw_result
from sidewinder.errors import PublishError
from sidewinder.files import markers, raw, records
from sidewinder.files.summary import Counts, summarise
from sidewinder.model import Output


def test_every_point_is_counted_once_and_every_open_one_explained(tmp_path: Path) -> None:
    points = [point(f"p{i:02}", "pi5" if i < 12 else "gpu") for i in range(20)]
    for i in range(12):
        records.publish(str(tmp_path), "pi5", f"p{i:02}", ok(f"p{i:02}"), ops=UNSYNCED)
    for i in (12, 13):
        record = failed(f"p{i}", message=f"exit code {i}", raw={"stderr": "one\n\ntwo\n", "stdout": "out\n"})
        records.publish(str(tmp_path), "gpu", f"p{i}", record, ops=UNSYNCED)
    records.publish(str(tmp_path), "gpu", "p14", failed("p14"), ops=UNSYNCED)
    records.publish(str(tmp_path), "gpu", "p15", hole("p15"), ops=UNSYNCED)
    (tmp_path / "records/gpu/p16.json").write_text("{")
    (tmp_path / "logs/gpu").mkdir(parents=True)
    (tmp_path / "logs/gpu/p17.log").write_bytes(b"start\n\xff died here\n")
    summary = summarise(str(tmp_path), plan_of(*points, accept={"p14": "driver bug", "p19": "not even tried"}))

    assert summary.by_device == {"pi5": Counts(12, 12), "gpu": Counts(8, 0, failed=2, never=5, accepted=1)}
    assert summary.total == Counts(20, 12, 2, 5, 1)
    assert (summary.total.open, summary.is_complete) == (7, False)
    assert summary.lines()[1] == "gpu  8 planned, 0 done, 2 failed, 5 never measured, 1 accepted"
    told = {each.run_id: each for each in summary.holes}
    assert list(told) == ["p12", "p13", "p15", "p16", "p17", "p18", "p19"]
    assert [told[run_id].status for run_id in told] == ["failed", "failed", "hole", "broken", *["missing"] * 3]
    assert told["p12"].failure_class == "measurement"
    assert told["p12"].reason == "exit code 12"
    assert told["p12"].log == ("one", "two")
    assert told["p15"].failure_class == "not_attempted"
    assert "torn" in told["p16"].reason
    assert told["p17"].log == ("start", "� died here")
    assert told["p18"].log == ()
    assert [each.run_id for each in summary.accepted] == ["p14"]
    for each in summary.holes:
        program, verb, path = shlex.split(each.command)
        assert (program, verb, path) == ("sidewinder", "measure", f"{tmp_path}/records/gpu/{each.run_id}.json")
        assert json.dumps(each.to_dict())


def test_nothing_done_and_nothing_planned(tmp_path: Path) -> None:
    assert summarise(str(tmp_path), plan_of(point("a"))).total == Counts(1, never=1)
    empty = summarise(str(tmp_path), plan_of())
    assert (empty.total, empty.is_complete, empty.lines()) == (Counts(), True, [])


def test_only_selected_points_are_open(tmp_path: Path) -> None:
    plan = replace(plan_of(point("a"), point("b", "gpu")), selected=frozenset("a"))
    assert summarise(str(tmp_path), plan).by_device == {"pi5": Counts(1, never=1)}


@pytest.mark.parametrize(
    "record", [failed("a", raw="?"), {**failed("a"), "failure": "x"}, {**failed("a"), "raw": {"stderr": 3}}]
)
def test_a_record_of_odd_shape_does_not_stop_the_report(record: dict[str, object], tmp_path: Path) -> None:
    records.publish(str(tmp_path), "pi5", "a", record, ops=UNSYNCED)
    (told,) = summarise(str(tmp_path), plan_of(point("a"))).holes
    assert told.reason


class TestRaw:
    def test_bytes_are_kept_and_text_is_for_display(self, tmp_path: Path) -> None:
        """B35: Latin-1, NULs, a cut character, an escape sequence."""
        noise = b"caf\xe9 \xc2\x20 \xff\xfe\0\x1b[31mred\x1b[0m\r\nend\xe2\x82"
        stored = raw.store(str(tmp_path), "pi5", "a", raw_result(noise), n=3, ops=UNSYNCED)
        assert (tmp_path / "raw/pi5/a/3.stdout").read_bytes() == noise
        assert stored["stdout"] == "caf� �  ���red\nend�"
        assert (stored["dir"], stored["files"]) == ("raw/pi5/a", ["3.stdout"])
        assert records.status_in(records.encode({**ok("a"), "raw": stored}), "a") == "ok"

    def test_head_and_tail(self, tmp_path: Path) -> None:
        cut = Output(b"head\n", b"\ntail", 1_000_010)
        stored = raw.store(str(tmp_path), "pi5", "a", replace(raw_result(), stdout=cut))
        assert stored["files"] == ["1.stdout.head", "1.stdout.tail"]
        assert stored["stdout"] == "head\n\n[… 1000000 bytes not kept …]\n\ntail"

    def test_no_output_makes_no_file(self, tmp_path: Path) -> None:
        assert raw.store(str(tmp_path), "pi5", "a", raw_result()) == {"stdout": "", "stderr": ""}
        assert not list(tmp_path.iterdir())

    def test_attempts_do_not_overwrite_each_other(self, tmp_path: Path) -> None:
        for n, text in ((1, b"good"), (2, b"bad")):
            raw.store(str(tmp_path), "pi5", "a", raw_result(text), n=n, ops=UNSYNCED)
        assert (tmp_path / "raw/pi5/a/1.stdout").read_bytes() == b"good"

    def test_display_is_bounded(self) -> None:
        long = Output(b"a" * 50_000 + b"z" * 50_000, b"", 100_000)
        shown = raw.display(long, 1000)
        assert len(shown) < 1100
        assert shown.startswith("a" * 500 + "\n[… 99000 characters")
        assert shown.endswith("z" * 500)
        assert raw.display(long, 1000, keep_head=False).count("a") < 10


class TestMarkers:
    def paths(self, folder: Path) -> tuple[str, str]:
        return str(folder / "a.json"), str(folder / "a.json.open")

    def test_no_record_needs_no_marker(self, tmp_path: Path) -> None:
        record, marker = self.paths(tmp_path)
        assert not markers.open_marker(record, marker, done=False)
        assert not os.path.exists(marker)

    def test_a_done_record_keeps_what_there_is(self, tmp_path: Path) -> None:
        record, marker = self.paths(tmp_path)
        Path(record).write_text("{}")
        assert not markers.open_marker(record, marker, done=True)
        Path(marker).write_text("old")
        os.utime(marker, (1, 1))
        assert markers.open_marker(record, marker, done=True)
        assert (Path(marker).read_text(), os.stat(marker).st_mtime) == ("old", 1)

    @pytest.mark.parametrize("record_time", [1, 4_000_000_000, None])
    def test_an_open_record_gets_a_newer_one_with_fresh_content(self, record_time: int | None, tmp_path: Path) -> None:
        """Also where the record is of tomorrow, or the marker was touched later than the record."""
        record, marker = self.paths(tmp_path)
        Path(record).write_text("{}")
        if record_time is not None:
            os.utime(record, (record_time, record_time))
        seen = set()
        for _ in range(3):
            assert markers.open_marker(record, marker, done=False)
            assert os.stat(marker).st_mtime_ns > os.stat(record).st_mtime_ns
            seen.add(Path(marker).read_text())
        assert len(seen) == 3

    def test_a_spawned_job_writes_nothing(self, tmp_path: Path) -> None:
        record, marker = self.paths(tmp_path)
        Path(record).write_text("{}")
        assert not markers.open_marker(record, marker, done=False, write=False)
        assert not os.path.exists(marker)

    def test_a_marker_that_cannot_be_written_is_told(self, tmp_path: Path) -> None:
        record, marker = self.paths(tmp_path)
        Path(record).write_text("{}")
        os.mkdir(marker)
        with pytest.raises(PublishError, match=r"marker .*a\.json\.open"):
            markers.open_marker(record, marker, done=False)
