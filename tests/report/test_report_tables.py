"""The points table: one row a planned point, typed, nothing invented."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from report.conftest import Built
from report.helpers_report import Sweep, llama_points, twelve
from sidewinder.report import columns, tables


def frame_of(sweep: Sweep) -> pd.DataFrame:
    return tables.points(sweep.root, sweep.plan)


def test_one_row_for_every_planned_point_in_plan_order(eventful: Built) -> None:
    table = pd.read_parquet(eventful.folder / "summary/points.parquet")
    planned = table[table["planned"]]
    assert list(planned["run_id"]) == list(eventful.plan.points)
    assert list(table[~table["planned"]]["device"]) == ["pi5-spare"]
    assert set(table["status"]) == {"ok", "failed", "hole", "broken", "missing"}


def test_what_was_not_measured_is_absent_and_never_zero(eventful: Built) -> None:
    table = tables.read_parquet(str(eventful.folder / "summary/points.parquet"))
    assert table is not None
    numbers = [*columns.METRIC_COLUMNS.values(), *(c for c in table if c.startswith(("metrics.", "sd.", "n.")))]
    gone = table[table["status"] != "ok"]
    assert len(gone) == 10
    assert gone[numbers].isna().all(axis=None)
    assert not (table[numbers] == 0).any(axis=None)


def test_a_nan_metric_is_absent_and_the_other_metrics_stay(eventful: Built) -> None:
    table = tables.points(str(eventful.folder), eventful.plan, "pi5").set_index("run_id")
    row = table.loc["smol-q8-0-t2-p128-n32-pi5"]
    assert row["status"] == "ok"
    assert pd.isna(row["decode_tps"])
    assert row["prefill_tps"] > 0


def test_a_hole_keeps_the_axes_that_were_asked_of_it(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("a", threads=2, model="m", prompt_tokens=64, parameters={"lr": 0.1, "opt": "adam"})
    row = frame_of(sweep).iloc[0]
    assert (row["status"], row["threads"], row["prompt_tokens"], row["parameters.lr"]) == ("missing", 2, 64, 0.1)
    assert row["parameters.opt"] == "adam"
    assert not row["done"]
    assert point.run_id == row["run_id"]


def test_spread_is_that_of_the_repeats(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("a")
    record = sweep.ok(point)
    record["samples"] = {"prefill_tps": [100.0, 110.0, 120.0, None, float("nan")], "own": [5.0]}
    record["metrics"] = {"prefill_tps": 110.0, "own": 5}
    sweep.write(point, record)
    row = frame_of(sweep).iloc[0]
    assert row["sd.prefill_tps"] == pytest.approx(10.0)
    assert row["cv_pct.prefill_tps"] == pytest.approx(100 * 10 / 110)
    assert (row["n.prefill_tps"], row["n.own"], row["metrics.own"]) == (3, 1, 5)
    assert "sd.own" not in row.index


def test_figures_that_no_float_can_hold_and_names_that_look_alike(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("a")
    record = sweep.ok(point)
    record["metrics"] = {"big": 1e308, "a\x01": 1, "a\x02": 2}
    record["samples"] = {"big": [1e308, 1e308, -1e308]}
    sweep.write(point, record)
    sweep.point("b")
    table = frame_of(sweep)
    assert table.iloc[0]["metrics.big"] == 1e308
    assert table.iloc[0]["metrics.a\ufffd"] == 1
    assert len(table) == 2


def test_conditions_are_read_from_the_shape_that_the_agent_writes(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    point = sweep.point("a", threads=1)
    record = sweep.ok(point)
    record["conditions"]["cgroup"] = {"throttled_us": 250_000}
    sweep.write(point, record)
    row = frame_of(sweep).iloc[0]
    assert (row["load_before"], row["load_after"]) == (0.71, 1.1)
    assert row["pressure_cpu_before_pct"] == 1.2
    assert row["pressure_cpu_during_pct"] == pytest.approx(1.5)
    assert row["cgroup_throttled_s"] == 0.25
    assert pd.isna(row["pressure_io_during_pct"])


def test_csv_comes_back_as_it_went(eventful: Built) -> None:
    folder = eventful.folder / "summary"
    parquet = tables.read_parquet(str(folder / "points.parquet"))
    assert parquet is not None
    csv = tables.read_csv(str(folder / "points.csv"))
    assert list(csv.columns) == list(parquet.columns)
    for name in csv.columns:
        if parquet[name].notna().any():
            assert list(csv[name].astype(object).where(csv[name].notna(), None)) == list(
                parquet[name].astype(object).where(parquet[name].notna(), None)
            ), name
    line = (folder / "points.csv").read_text().splitlines()[1]
    assert "2.0," not in line.replace("272.0", "")


def test_integers_are_integers_in_every_reader(twelve: Built) -> None:
    plain = pd.read_csv(twelve.folder / "summary/points.csv", dtype=str)
    assert set(plain["threads"]) == {"1", "2"}
    assert set(plain["n.prefill_tps"]) == {"5"}
    table = pd.read_parquet(twelve.folder / "summary/points.parquet")
    assert str(table["threads"].dtype) == "Int64"
    assert str(table["timestamp_utc"].dtype).startswith("datetime64")
    assert str(table["timestamp_utc"].dt.tz) == "UTC"


def test_a_tree_of_device_tables_gives_the_same_table(eventful: Built) -> None:
    devices = ("local", "pi5", "gpu0")
    parts = [tables.points(str(eventful.folder), eventful.plan, d) for d in devices]
    whole = tables.points(str(eventful.folder), eventful.plan)
    combined = tables.combine(parts, list(eventful.plan.points))
    pd.testing.assert_frame_equal(combined, whole)


def test_no_point_at_all_still_has_every_column() -> None:
    table = tables.frame([])
    assert list(table.columns) == list(columns.COLUMNS)
    assert len(tables.combine([], [])) == 0
    assert tables.rows_of(table) == []


def test_a_parameter_of_several_types_is_text(tmp_path: Path) -> None:
    sweep = Sweep(str(tmp_path))
    for i, value in enumerate((1, "auto", [1, 2], True, 2**70)):
        sweep.point(f"p{i}", parameters={"k": value, "n": i, "f": i / 2})
    table = frame_of(sweep)
    assert list(table["parameters.k"]) == ["1", "auto", "1x2", "true", str(2**70)]
    assert str(table["parameters.n"].dtype) == "Int64"
    assert str(table["parameters.f"].dtype) == "Float64"
    tables.to_parquet(table)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = (
    "warnings", "tags", "timestamp_utc", "duration_s", "identity", "device", "backend", "workload", "knobs", "metrics",
    "samples", "telemetry", "conditions", "raw", "failure", "attempts", "order", "clock", "versions", "moved_to",
    "error",
)  # fmt: skip


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(KEYS), json_values), min_size=4, max_size=12))
def test_no_content_of_a_record_stops_the_table(tmp_path: Path, contents: list[dict[str, Any]]) -> None:
    sweep = Sweep(str(tmp_path))
    for i, content in enumerate(contents):
        status = "failed" if i % 3 == 2 else "ok"
        sweep.write(sweep.point(f"p{i}"), {**content, "schema_version": 1, "run_id": f"p{i}", "status": status})
    table = frame_of(sweep)
    assert set(table["status"]) <= {"ok", "failed", "hole"}
    back = tables.rows_of(table)
    assert all(not (isinstance(v, float) and math.isnan(v)) for row in back for v in row.values())
    tables.to_parquet(table)
    path = tmp_path / "x.csv"
    path.write_bytes(tables.to_csv(table))
    assert len(tables.read_csv(str(path))) == len(table)


def test_every_column_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs/report.md").read_text()
    assert [c for c in (*columns.COLUMNS, *columns.PREFIXES) if f"`{c}" not in text] == []


def test_the_order_of_the_sweep_is_in_the_table(tmp_path: Path) -> None:
    table = frame_of(twelve(str(tmp_path)))
    assert sorted(table["order_position"]) == list(range(12))
    first = table.set_index("order_position")
    assert pd.isna(first.loc[0]["order_predecessor"])
    assert first.loc[5]["order_predecessor"] == first.loc[4]["run_id"]
    assert len(llama_points(Sweep(str(tmp_path)))) == len(table)
