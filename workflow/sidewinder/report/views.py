"""A view: the points of one kind of measurement, with the axes that vary between them and the metrics they yield."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sidewinder.model import Json, Plan

from . import nodes
from .columns import COLUMNS, METRIC_COLUMNS
from .tables import Row

MAX_SERIES: Final = 7  # as many colours as a colour-blind reader can tell apart
MAX_PANELS: Final = 12
MAX_CHARTED: Final = 6


class Metric(NamedTuple):
    column: str
    title: str
    unit: str
    charted: bool = True


_KNOWN: Final[tuple[Metric, ...]] = (
    Metric("prefill_tps", "Prefill", "tokens/s"),
    Metric("ttft_ms", "Time to first token", "ms"),
    Metric("decode_tps", "Decode", "tokens/s"),
    Metric("e2e_ms", "Whole request", "ms"),
    Metric("ips", "Inferences", "per s"),
    Metric("latency_ms", "Latency, mean", "ms"),
    Metric("latency_p50_ms", "Latency, median", "ms", False),
    Metric("latency_p95_ms", "Latency, 95th percentile", "ms", False),
    Metric("latency_p99_ms", "Latency, 99th percentile", "ms", False),
    Metric("load_ms", "Load", "ms", False),
    Metric("decode_bw_GBs", "Decode bandwidth", "GB/s", False),
    Metric("bw_util_pct", "of peak bandwidth", "%", False),
    Metric("stdev_pct", "Spread, as told", "%", False),
    Metric("peak_rss_bytes", "Peak memory", "", False),
    Metric("model_resident_bytes", "Model in memory", "", False),
)
assert {m.column for m in _KNOWN} == set(METRIC_COLUMNS.values())

_AXES: Final[Mapping[str, str]] = {
    "model": "model",
    "quant": "quantisation",
    "threads": "threads",
    "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens",
    "context_tokens": "context tokens",
    "batch": "batch size",
    "input_shape": "input shape",
    "governor": "governor",
    "freq_khz": "clock, kHz",
    "flash_attention": "flash attention",
    "kv_quant": "key/value cache",
    "repetitions": "repetitions",
    "warmup": "warm-up runs",
}
_TOKENS: Final = {"context_tokens": "d", "prompt_tokens": "p", "output_tokens": "n"}


@dataclass(frozen=True, slots=True)
class Axis:
    """One thing that varies: its cells are ``column`` of a row, or several columns written as one (``p64/n16``)."""

    columns: tuple[str, ...]
    title: str
    values: tuple[Json, ...]

    @property
    def is_numeric(self) -> bool:
        return len(self.columns) == 1 and all(_is_number(v) for v in self.values if v is not None)

    def of(self, row: Row) -> Json:
        if len(self.columns) == 1:
            return row.get(self.columns[0])
        return tokens(row, self.columns)

    def shown(self, value: Json) -> str:
        if value is None:
            return "default"
        return str(value)

    def named(self, value: Json) -> str:
        """A value where nothing else says what it is: ``threads 2``, but ``p64/n16``."""
        if len(self.columns) > 1 or self.columns[0] in ("device", "model", "quant"):
            return self.shown(value)
        return f"{self.title} {self.shown(value)}"


@dataclass(frozen=True, slots=True)
class View:
    title: str
    rows: Sequence[Row]
    axes: Sequence[Axis]  # every column that varies, for the table
    constants: Sequence[tuple[str, str]]
    metrics: Sequence[Metric]
    x: Axis
    series: Axis | None
    facets: Sequence[Axis]
    notes: Sequence[str] = field(default=())

    @property
    def measured(self) -> int:
        return sum(1 for r in self.rows if r.get("status") == "ok")

    @property
    def charted(self) -> list[Metric]:
        """The metrics worth a chart; where a workload has only side figures, those."""
        there = [m for m in self.metrics if any(r.get(m.column) is not None for r in self.rows)]
        return ([m for m in there if m.charted] or there)[:MAX_CHARTED]

    def panels(self) -> list[tuple[str, list[Row]]]:
        """The rows of each panel under its title, in the order of the axes' values."""
        found: dict[tuple[Json, ...], list[Row]] = {}
        for row in self.rows:
            found.setdefault(tuple(f.of(row) for f in self.facets), []).append(row)
        places = [{v: i for i, v in enumerate(f.values)} for f in self.facets]
        keys = sorted(found, key=lambda key: [places[i][v] for i, v in enumerate(key)])
        return [(" · ".join(f.named(v) for f, v in zip(self.facets, k, strict=True)), found[k]) for k in keys]


def tokens(row: Row, columns: Iterable[str] = tuple(_TOKENS)) -> str:
    return "/".join(f"{_TOKENS[c]}{row[c]}" for c in columns if row.get(c) is not None) or "default"


def views(rows: Iterable[Row], plan: Plan) -> list[View]:
    """The planned points by what measures them, in plan order. Work that failover brought is in none of them. The
    points of a pod that ran on several nodes are those of several devices."""
    groups: dict[tuple[Json, ...], list[Row]] = {}
    for row in nodes.apart([*rows]):
        if row.get("planned"):
            groups.setdefault((row.get("backend"), row.get("mode"), row.get("command")), []).append(row)
    return [_view(key, [_as_asked(r, plan) for r in group], _seen(group)) for key, group in groups.items()]


def _as_asked(row: Row, plan: Plan) -> Row:
    """The row with only those axes that the plan sets: what a device merely told is no axis, and holes tell nothing."""
    point = plan.points[row["run_id"]]
    told = [c for c in _AXES if c in row and getattr(point, COLUMNS[c].planned or "", None) is None]
    return {c: v for c, v in row.items() if c not in told} if told else row


def _seen(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Settings that nobody asked for and that all who tell them tell alike."""
    seen = {c: {str(r[c]) for r in rows if c in r} for c in _AXES}
    return [(_AXES[c], next(iter(values))) for c, values in seen.items() if len(values) == 1]


def _view(key: tuple[Json, ...], rows: list[Row], seen: list[tuple[str, str]]) -> View:
    backend, mode, command = key
    title = " ".join(str(command).split("\n")) if command else " · ".join(str(k) for k in (backend, mode) if k)
    axes, asked = _axes(rows)
    varying = {a.title for a in axes}
    constants = list(dict.fromkeys((*asked, *(pair for pair in seen if pair[0] not in varying))))
    x, series, facets = _arrange(axes, rows)
    if x.columns[0] not in _TOKENS:
        axes = _with_tokens_merged(axes, rows)
    return View(title, rows, axes, constants, _metrics(rows), x, series, facets)


def _axes(rows: Sequence[Row]) -> tuple[list[Axis], list[tuple[str, str]]]:
    names = {c for r in rows for c in r}
    free = sorted(c for c in names if c.startswith(("parameters.", "extra.")))
    titles = {"device": "device", **_AXES, **{c: c.split(".", 1)[1] for c in free}}
    axes, constants = [], []
    for column, title in titles.items():
        values = _distinct(r.get(column) for r in rows)
        if len(values) > 1:
            axes.append(Axis((column,), title, tuple(values)))
        elif values and values[0] is not None:
            constants.append((title, str(values[0])))
    # One quantisation for each model says nothing that the model's name does not.
    by_name = {a.columns[0]: a for a in axes}
    if "model" in by_name and "quant" in by_name:
        pairs = {(r.get("model"), r.get("quant")) for r in rows}
        if len(pairs) == len(by_name["model"].values):
            axes.remove(by_name["quant"])
    return axes, constants


def _arrange(axes: Sequence[Axis], rows: Sequence[Row]) -> tuple[Axis, Axis | None, list[Axis]]:
    """What goes to the x axis, what gets a colour, and what a panel of its own."""
    left = list(axes)
    x = next((a for a in left if a.columns == ("threads",)), None)
    if x is None:
        numeric = [a for a in left if a.is_numeric]
        x = max(numeric, key=lambda a: len(a.values)) if numeric else left[0] if left else None
    if x is None:
        return Axis(("device",), "device", tuple(_distinct(r.get("device") for r in rows))), None, []
    left.remove(x)
    left = _with_tokens_merged(left, rows)
    ranked = sorted(left, key=lambda a: {"model": 0, "quant": 1, "device": 2}.get(a.columns[0], 3))
    series = next((a for a in ranked if len(a.values) <= MAX_SERIES), None)
    facets = [a for a in left if a is not series]
    return x, series, facets


def _with_tokens_merged(axes: Sequence[Axis], rows: Sequence[Row]) -> list[Axis]:
    """Token counts that vary together are one thing to a reader: the shape of a request."""
    columns = tuple(c for c in _TOKENS if any(a.columns == (c,) for a in axes))
    if len(columns) < 2:
        return list(axes)
    ordered = sorted(rows, key=lambda r: [_sort_key(r.get(c)) for c in columns])
    merged = Axis(columns, "tokens", tuple(dict.fromkeys(tokens(r, columns) for r in ordered)))
    return [*(a for a in axes if a.columns[0] not in columns), merged]


def _metrics(rows: Sequence[Row]) -> list[Metric]:
    names = {c for r in rows for c in r}
    known = [m for m in _KNOWN if m.column in names]
    custom = sorted(c for c in names if c.startswith("metrics."))
    return [*known, *(Metric(c, c.removeprefix("metrics."), "") for c in custom)]


def _distinct(values: Iterable[Json]) -> list[Json]:
    """Different values in an order a person expects: numbers by size, text in the order it came, absent last."""
    seen = list(dict.fromkeys(values))
    known = [v for v in seen if v is not None]
    if all(_is_number(v) for v in known):
        known.sort()
    return known + [None] * (len(known) < len(seen))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sort_key(value: Json) -> tuple[int, float]:
    return (0, float(value)) if _is_number(value) else (1, 0.0)
