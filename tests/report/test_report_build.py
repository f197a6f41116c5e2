"""Building: always succeeds, whole files only, by a tree of tables as well as from the records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from report.conftest import Built, build
from report.helpers_report import GENERATED, Sweep, eventful, parse_html, words_of
from sidewinder import report
from sidewinder.errors import PublishError
from sidewinder.files.layout import RunFolder

FILES = {"points.parquet", "points.csv", "holes.json", "report.html"}


def headline(built: Built) -> str:
    return words_of(parse_html(built.html).xpath("//h1")[0])


def one_point(sweep: Sweep) -> None:
    point = sweep.point("a", threads=1)
    sweep.write(point, sweep.ok(point))


def nothing_ran(sweep: Sweep) -> None:
    for t in (1, 2, 4):
        sweep.point(f"t{t}", threads=t)


def only_holes(sweep: Sweep) -> None:
    for t in (1, 2, 4):
        point = sweep.point(f"t{t}", threads=t)
        sweep.write(point, sweep.hole(point, "timed out"))


def only_broken(sweep: Sweep) -> None:
    for i, data in enumerate((b"", b"{", b"[]", b"\xff\xfe", b'{"schema_version": 2}', b"null")):
        sweep.write(sweep.point(f"b{i}", threads=i + 1), data)
    folder = RunFolder(sweep.root).record("local", "folder")
    sweep.point("folder")
    os.makedirs(folder)
    stranger = sweep.point("stranger")
    sweep.write(stranger, sweep.ok(stranger) | {"run_id": "somebody-else"})


def unknown_device(sweep: Sweep) -> None:
    sweep.point("a", device="removed-since")


CASES: list[tuple[Callable[[Sweep], None], str]] = [
    (lambda sweep: None, "0 of 0 measured"),
    (one_point, "1 of 1 measured"),
    (nothing_ran, "0 of 3 measured"),
    (only_holes, "0 of 3 measured"),
    (only_broken, "0 of 8 measured"),
    (unknown_device, "0 of 1 measured"),
]


@pytest.mark.parametrize(("fill", "expected"), CASES, ids=[getattr(f, "__name__", "empty") for f, _ in CASES])
def test_it_is_built_whatever_there_is(tmp_path: Path, fill: Callable[[Sweep], None], expected: str) -> None:
    sweep = Sweep(str(tmp_path))
    fill(sweep)
    built = build(sweep)
    assert headline(built) == expected
    assert {p.name for p in (tmp_path / "summary").iterdir()} == FILES
    assert len(pd.read_csv(tmp_path / "summary/points.csv")) == len(sweep.points)
    holes = json.loads((tmp_path / "summary/holes.json").read_text())
    assert f"{holes['done']} of {holes['planned']} measured" == expected
    assert len(holes["open"]) == holes["planned"] - holes["done"]


def test_a_record_nested_too_deep_is_a_broken_record(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    sweep.write(sweep.point("deep"), b"[" * 100_000)
    assert headline(build(sweep)) == "0 of 1 measured"


def test_holes_json_agrees_with_the_summary(eventful: Built) -> None:
    holes = json.loads((eventful.folder / "summary/holes.json").read_text())
    total = eventful.summary.total
    assert (holes["planned"], holes["done"], holes["failed"], holes["never"]) == (39, 29, 3, 6)
    assert (total.planned, total.done, total.failed, total.never) == (39, 29, 3, 6)
    assert [h["run_id"] for h in holes["open"]] == [h.run_id for h in eventful.summary.holes]
    assert holes["accepted"][0]["accepted"] == "this quantisation crashes on that board; known upstream"


def tree(sweep: Sweep) -> list[str]:
    paths = []
    for device in ("local", "pi5", "gpu0"):
        paths.append(RunFolder(sweep.root).table(device))
        report.table(sweep.root, sweep.plan, device, paths[-1])
    return paths


def points_csv(sweep: Sweep) -> bytes:
    return Path(sweep.root, "summary/points.csv").read_bytes()


def test_a_tree_of_tables_gives_what_the_records_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.report.page.render", lambda *a: "")  # drawing is tested elsewhere
    sweep = eventful(str(tmp_path))
    plan = sweep.publish()
    paths = tree(sweep)
    report.build(sweep.root, plan, generated=GENERATED)
    direct = points_csv(sweep)

    def read_again(*_: object) -> None:
        raise AssertionError("the records were read although every table is good")

    monkeypatch.setattr("sidewinder.report.tables.points", read_again)
    report.build(sweep.root, plan, tables=paths, generated=GENERATED)
    assert points_csv(sweep) == direct


def test_a_table_that_the_disk_contradicts_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.report.page.render", lambda *a: "")
    sweep = eventful(str(tmp_path))
    plan = sweep.publish()
    paths = tree(sweep)
    Path(paths[0]).write_bytes(b"PAR1 torn")
    gone = RunFolder(sweep.root).record("gpu0", "smol-q4-1-t1-p32-n16-gpu0")
    os.unlink(gone)
    redone = RunFolder(sweep.root).record("pi5", "smol-q4-1-t1-p32-n16-pi5")
    record = json.loads(Path(redone).read_text())
    record["metrics"]["prefill_tps"] = 12345.0
    Path(redone).write_text(json.dumps(record))
    later_ns = os.stat(paths[1]).st_mtime_ns + 10**9
    os.utime(redone, ns=(later_ns, later_ns))
    report.build(sweep.root, plan, tables=[*paths, str(tmp_path / "nowhere.parquet")])
    table = pd.read_csv(tmp_path / "summary/points.csv").set_index("run_id")
    assert table.loc["smol-q4-1-t1-p32-n16-gpu0", "status"] == "missing"
    assert table.loc["smol-q4-1-t1-p32-n16-pi5", "prefill_tps"] == 12345.0
    assert (table["device"] == "local").sum() == 15


def test_a_selection_counts_itself_and_says_that_there_is_more(tmp_path: Path) -> None:
    import dataclasses

    sweep = Sweep(str(tmp_path))
    nothing_ran(sweep)
    plan = dataclasses.replace(sweep.publish(), selected=frozenset({"t1"}))
    report.build(sweep.root, plan, generated=GENERATED)
    page = (tmp_path / "summary/report.html").read_text()
    assert "of 1 measured" in words_of(parse_html(page).xpath("//h1")[0])
    assert "2 further points of the plan are not asked for here" in page
    assert len(pd.read_csv(tmp_path / "summary/points.csv")) == 3


def test_a_chart_that_cannot_be_drawn_costs_the_chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ValueError("no such mark <b>")

    monkeypatch.setattr("sidewinder.report.charts._draw", broken)
    sweep = Sweep(str(tmp_path))
    one_point(sweep)
    assert "This chart could not be drawn: no such mark &lt;b&gt;" in build(sweep).html


def test_a_disk_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    one_point(sweep)
    plan = sweep.publish()
    (tmp_path / "summary").write_text("a file where the folder should be")
    with pytest.raises(PublishError, match=r"points\.parquet"):
        report.build(sweep.root, plan)


def test_importing_the_report_loads_no_library_for_drawing() -> None:
    names = ("pandas", "altair", "jinja2", "pyarrow")
    code = f"import sys, sidewinder.report; print([m for m in {names} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
