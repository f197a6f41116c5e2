"""Charts: a gap is a gap, colours come from the page, labels are data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from report.helpers_report import Sweep
from sidewinder.report import charts, tables, views


def draw(sweep: Sweep, column: str = "prefill_tps") -> list[charts.Panel]:
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    (view,) = views.views(rows, sweep.plan)
    metric = next(m for m in view.metrics if m.column == column)
    return charts.panels(view, metric, view.panels(), "t")


def strokes(svg: str) -> list[str]:
    """The paths that are lines between means: stroked with a series colour, 1.75 wide."""
    return [m.group(1) for m in re.finditer(r'<path [^>]*d="([^"]*)"[^>]*stroke-width="1.75"[^>]*opacity="0.85"', svg)]


def threads(tmp_path: Path, gap_at: int | None) -> list[charts.Panel]:
    sweep = Sweep(str(tmp_path))
    for t in (1, 2, 4, 8):
        point = sweep.point(f"t{t}", threads=t, model="m", quantization="q4_1")
        if t != gap_at:
            sweep.write(point, sweep.ok(point))
    return draw(sweep)


def test_no_line_runs_through_a_missing_point(tmp_path: Path) -> None:
    (whole,) = threads(tmp_path / "whole", None)
    (gap,) = threads(tmp_path / "gap", 4)
    assert [d.count("M") for d in strokes(whole.svg)] == [1]
    assert strokes(whole.svg)[0].count("L") == 3
    # 1-2 are joined; 8 stands alone behind the gap
    assert [d.count("M") for d in strokes(gap.svg)] == [2]
    assert strokes(gap.svg)[0].count("L") == 1
    assert (whole.missing, gap.missing) == (0, 1)
    crosses = gap.svg.count('stroke-width="1.75"') - len(strokes(gap.svg))
    assert crosses == 1
    assert "Not measured: threads 4." in gap.svg


def test_a_drawing_has_only_colours_of_the_page_and_ids_of_its_own(tmp_path: Path) -> None:
    (panel,) = threads(tmp_path, 2)
    assert re.findall(r"#[0-9a-fA-F]{3,6}\b", panel.svg.replace("url(#", "url(")) == []
    assert "var(--s0)" in panel.svg
    assert "var(--ink)" in panel.svg
    assert all(i.startswith("t-0-") for i in re.findall(r'\bid="([^"]*)"', panel.svg))
    assert 'role="img" aria-label="Prefill, tokens/s by threads' in panel.svg


def test_repeats_are_drawn_one_by_one(tmp_path: Path) -> None:
    (panel,) = threads(tmp_path, None)
    assert panel.svg.count('opacity="0.5"') == 4 * 5


def test_labels_are_data_not_code(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    evil = ("'];alert(1)//", '"]+"', "</svg><script>alert(1)</script>", "a\\", "\u2028x")
    for i, name in enumerate(evil):
        point = sweep.point(f"m{i}", parameters={"how": name})
        sweep.write(point, sweep.ok(point))
    (panel,) = draw(sweep)
    assert panel.note == ""
    assert "<script" not in panel.svg
    assert "&lt;/svg&gt;&lt;script&gt;" in panel.svg


def test_many_values_get_a_real_scale_and_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "MAX_MARKS", 100)
    sweep = Sweep(str(tmp_path))
    for i in range(210):
        sweep.point(f"m{i}", parameters={"x": i})
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    for row in rows:
        row |= {"status": "ok", "prefill_tps": 1.0 + row["parameters.x"] % 7}
    (view,) = views.views(rows, sweep.plan)
    (panel,) = charts.panels(view, view.charted[0], view.panels(), "t")
    assert panel.note.startswith("One point in 3 of 210")
    assert panel.svg.count("<path") < 120


def test_an_axis_is_what_the_plan_varies_not_what_devices_told(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for t in (1, 2):
        point = sweep.point(f"t{t}", threads=t)
        record = sweep.ok(point)
        record["knobs"]["governor"] = "performance" if t == 1 else "powersave"
        sweep.write(point, record)
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    (view,) = views.views(rows, sweep.plan)
    assert [a.title for a in view.axes] == ["threads"]
    assert view.facets == []


def test_tokens_that_vary_together_are_one_axis(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for p, n in ((128, 32), (32, 16), (64, 16)):
        for t in (1, 2):
            sweep.point(f"p{p}t{t}", threads=t, prompt_tokens=p, output_tokens=n)
    rows = tables.rows_of(tables.points(sweep.root, sweep.plan))
    (view,) = views.views(rows, sweep.plan)
    assert view.series is not None
    assert view.series.values == ("p32/n16", "p64/n16", "p128/n32")
    assert view.x.columns == ("threads",)
