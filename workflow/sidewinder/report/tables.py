"""The points table: one row for every planned point, measured or not, ready for analysis.

What could not be measured is NA, never 0. Points that were measured on another device by failover get a row of their
own with ``planned`` false; the row of the planned point says ``moved_to``.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sidewinder.model import Json, Plan

from . import columns
from .columns import COLUMNS, FIELDS, PREFIXES, TIME, clean, coerce, metric_column, number, numbers
from .readings import Reading, read_all

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Json]


def points(folder: str, plan: Plan, device: str | None = None) -> pd.DataFrame:
    """The points table of a run folder, or of one of its devices, in plan order."""
    return frame(row(reading) for reading in read_all(folder, plan, device))


def row(reading: Reading) -> Row:
    """One row; keys whose value is not known are left out."""
    record, point = reading.record, reading.point
    cells: Row = {
        "run_id": reading.run_id,
        "device": reading.device,
        "status": reading.state,
        "done": reading.done,
        "planned": reading.planned,
        "accepted": reading.accepted,
        "experiment": record.get("experiment"),
        "moved_to": record.get("moved_to"),
        "failover_from": columns.look_up(record, "identity.failover_from"),
        "warnings": _lines(record.get("warnings")),
        "tags": _lines(point.tags if point else record.get("tags")),
        "command": _lines(point.command if point else columns.look_up(record, "identity.command")),
        "timestamp_utc": record.get("timestamp_utc"),
        **_failure(reading),
        **_attempts(record.get("attempts")),
    }
    for column in (*FIELDS, *columns.CGROUP):
        for path in column.paths:
            if (value := columns.look_up(record, path)) is not None:
                cells[column.name] = value
                break
    if point is not None:
        for column in (*columns.STATE, *FIELDS):
            if column.planned and (value := getattr(point, column.planned)) is not None:
                cells[column.name] = value
        cells.update({f"parameters.{k}": v for k, v in point.parameters.items()})
        cells.update({f"extra.{k}": v for k, v in point.extra.items()})
    else:
        for path, prefix in (("workload.parameters", "parameters."), ("knobs.extra", "extra.")):
            value = columns.look_up(record, path)
            cells.update({f"{prefix}{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {})
    if reading.state == "ok":  # numbers of a failed run are evidence in its record, not measurements
        cells.update(_metrics(record))
    else:
        cells = {k: v for k, v in cells.items() if k not in _METRIC_NAMES}
    cells.update(_conditions(record.get("conditions")))
    return {k: v for k, v in cells.items() if v is not None}


_METRIC_NAMES: Final = frozenset(columns.METRIC_COLUMNS.values())


def _lines(value: Json) -> str | None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return None
    return "\n".join(str(v) for v in value) or None


def _failure(reading: Reading) -> Row:
    if reading.state == "ok":
        return {}
    failure = reading.record.get("failure")
    failure = failure if isinstance(failure, Mapping) else {}
    return {
        "failure_class": failure.get("class"),
        "failure": reading.problem or failure.get("message") or reading.record.get("error"),
    }


def _attempts(value: Json) -> Row:
    attempts = [a for a in value if isinstance(a, Mapping)] if isinstance(value, list) else []
    if not attempts:
        return {}
    return {
        "attempts": len(attempts),
        "attempts_json": json.dumps(attempts, sort_keys=True, separators=(",", ":")),
        "started_utc": attempts[-1].get("start_utc"),
    }


def _metrics(record: Mapping[str, Json]) -> Row:
    """Metrics that have no column of their own, and the spread over the repeats of all."""
    cells: Row = {}
    metrics = record.get("metrics")
    metrics = dict(metrics) if isinstance(metrics, Mapping) else {}
    extra = metrics.pop("extra", None)
    for name, value in {**(extra if isinstance(extra, Mapping) else {}), **metrics}.items():
        if name not in columns.METRIC_COLUMNS and (found := number(value)) is not None:
            cells[f"metrics.{name}"] = found
    samples = record.get("samples")
    kept = {}
    for name, values in samples.items() if isinstance(samples, Mapping) else ():
        repeats = numbers(values)
        if not repeats:
            continue
        kept[name] = repeats
        shown = metric_column(name).removeprefix("metrics.")
        cells[f"n.{shown}"] = len(repeats)
        if len(repeats) > 1:
            try:
                mean, sd = _mean_and_sd(repeats)
            except OverflowError:  # 1e300 and the like: there is no spread that a float could hold
                continue
            cells[f"sd.{shown}"] = sd
            if mean > 0:
                cells[f"cv_pct.{shown}"] = 100 * sd / mean
    if kept:
        cells["samples_json"] = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return cells


def _mean_and_sd(values: Sequence[float]) -> tuple[float, float]:
    mean = math.fsum(values) / len(values)
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def _conditions(value: Json) -> Row:
    """Load, pressure and throttling round the run. Pressure is the kernel's ``some``: someone had to wait."""
    if not isinstance(value, Mapping):
        return {}
    cells: Row = {}
    for when in ("before", "during", "after"):
        load = columns.look_up(value, f"load.{when}")
        cells[f"load_{when}"] = load[0] if isinstance(load, list) and load else load
        for what in ("cpu", "memory", "io"):
            cells[f"pressure_{what}_{when}_pct"] = _some(columns.look_up(value, f"pressure.{when}.{what}"))
    cells.pop("load_during")
    cgroup = value.get("cgroup")
    if isinstance(cgroup, Mapping) and (held_us := number(cgroup.get("throttled_us"))) is not None:
        cells["cgroup_throttled_s"] = held_us / 1e6
    return cells


def _some(value: Json) -> float | None:
    if isinstance(value, Mapping):
        share = number(value.get("some_share"))
        return share * 100 if share is not None else number(value.get("some_avg10"))
    return number(value)


# ---------------------------------------------------------------------------------------------------------------------
# rows <-> frames <-> files


def frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a frame with every column of the schema and the families that occur, each of one nullable type."""
    import pandas as pd

    cells: dict[str, list[Json]] = {name: [] for name in COLUMNS}
    same: dict[str, str] = {}  # 20 000 records name one processor 20 000 times
    length = 0
    for row in rows:
        for name, value in row.items():
            column = cells.get(name)
            if column is None:
                column = cells.setdefault(clean(name), [])
            column.extend([None] * (length - len(column)))
            if len(column) > length:
                continue  # two names that differ only in characters that nobody can see
            column.append(same.setdefault(value, value) if type(value) is str and len(value) < 80 else value)
        length += 1
    for column in cells.values():
        column.extend([None] * (length - len(column)))
    families = sorted((name for name in cells if name not in COLUMNS), key=_family_order)
    return pd.DataFrame({name: _array(name, cells.pop(name)) for name in (*COLUMNS, *families)})


def _family_order(name: str) -> tuple[int, str]:
    prefixes = list(PREFIXES)
    return next((i for i, p in enumerate(prefixes) if name.startswith(p)), len(prefixes)), name


def _array(name: str, values: Sequence[Json]) -> Any:
    """The cells of a column as a nullable array of the column's type."""
    import pandas as pd

    type_ = COLUMNS[name].type if name in COLUMNS else _type_of(values)
    return pd.array([coerce(v, type_) for v in values], dtype=type_)


def _type_of(values: Sequence[Json]) -> columns.Type:
    known = [v for v in values if v is not None]
    if known and all(isinstance(v, bool) for v in known):
        return "boolean"
    if known and all(isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**63 for v in known):
        return "Int64"
    if known and all(number(v) is not None for v in known):
        return "Float64"
    return "string"


def combine(frames: Sequence[pd.DataFrame], order: Sequence[str]) -> pd.DataFrame:
    """The tables of several devices as one, in the order of ``order`` (run ids); unknown run ids come last."""
    import pandas as pd

    names = list(dict.fromkeys(n for f in frames for n in f.columns))
    families = sorted((n for n in names if n not in COLUMNS), key=_family_order)
    if not frames:
        return frame([])
    place = {run_id: i for i, run_id in enumerate(order)}
    data: dict[str, Any] = {}
    parts = [f for f in frames if len(f)]
    for name in (*COLUMNS, *families):
        values = [v for f in parts for v in (_plain(f[name]) if name in f.columns else [None] * len(f))]
        data[name] = _array(name, values)
    whole = pd.DataFrame(data)
    rank = whole["run_id"].map(place).fillna(len(place)).astype("int64")
    return whole.iloc[rank.argsort(kind="stable")].reset_index(drop=True)


def rows_of(table: pd.DataFrame) -> list[Row]:
    """A frame as rows again: cells that are NA are left out."""
    names = list(table.columns)
    cells = (_plain(table[name], times=True) for name in names)
    return [
        {name: v for name, v in zip(names, values, strict=True) if v is not None} for values in zip(*cells, strict=True)
    ]


def _plain(series: pd.Series[Any], *, times: bool = False) -> list[Json]:
    """Cells as Python values with None for NA."""
    values: list[Json] = series.astype(object).where(series.notna(), None).tolist()
    if str(series.dtype).startswith("datetime"):
        stamps = [None if v is None else v.to_pydatetime() for v in values]
        return stamps if times else [None if v is None else v.isoformat() for v in stamps]
    return values


def to_parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def read_parquet(path: str) -> pd.DataFrame | None:
    """A table that ``to_parquet`` wrote; None where the file is gone, torn or something else."""
    import pandas as pd

    try:
        table = pd.read_parquet(path, dtype_backend="numpy_nullable")
    except (OSError, ValueError):  # ArrowInvalid is a ValueError
        return None
    return table if set(COLUMNS) <= set(table.columns) else None


def to_csv(table: pd.DataFrame) -> bytes:
    """RFC 4180 with ``\\n``: integers stay integers, floats keep every digit, NA is the empty cell, times are ISO."""
    shown = table.copy()
    for name in shown.columns:
        if str(shown[name].dtype).startswith("datetime"):
            shown[name] = _plain(shown[name])
    text: str = shown.to_csv(index=False, lineterminator="\n")
    return text.encode()


def read_csv(path: str) -> pd.DataFrame:
    """points.csv with the types it was written with. A CSV holds no types: columns of a family (``parameters.*``) are
    guessed from their cells, so text that looks like a number (``007``) reads as one; the parquet has no such limit."""
    import pandas as pd

    header = pd.read_csv(path, nrows=0).columns
    types: dict[str, Any] = {n: COLUMNS[n].type for n in header if n in COLUMNS and COLUMNS[n].type != TIME}
    # pandas 3 reads every digit by itself and warns where it is told to
    exact: dict[str, Any] = {"float_precision": "round_trip"} if pd.__version__.startswith("2.") else {}
    table: pd.DataFrame = pd.read_csv(
        path, dtype=types, keep_default_na=False, na_values=[""], dtype_backend="numpy_nullable", **exact
    )
    for name in header:
        if name in COLUMNS and COLUMNS[name].type == TIME:
            table[name] = _array(name, _plain(table[name]))
    return table
