"""A chart: one panel of a metric over an axis, as an SVG that takes its colours from the page around it.

Means are marks, the repeats behind them small dots, ± one standard deviation a line. A planned point that was not
measured is a cross at the top, and no line runs through its place.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sidewinder.model import Json

from .tables import Row
from .views import Axis, Metric, View
from .words import count, figure

WIDTH: Final = 330
HEIGHT: Final = 210
MAX_MARKS: Final = 1500
MAX_ORDINAL: Final = 12  # more values of a number than that get a real scale
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "triangle-down", "triangle-right", "triangle-left")
_CROSS: Final = "M-.5,-.5L.5,.5M-.5,.5L.5,-.5"

# Colours that nobody uses, each standing for a CSS variable: one drawing serves light, dark and print.
_SERIES: Final = tuple(f"#01fe{i:02x}" for i in range(7))
_INK, _GRID, _MUTED = "#01fe10", "#01fe11", "#01fe12"
_VARIABLES: Final = {**{c: f"--s{i}" for i, c in enumerate(_SERIES)}, _INK: "--ink", _GRID: "--grid", _MUTED: "--muted"}


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    svg: str
    missing: int
    note: str = ""


def panels(view: View, metric: Metric, chosen: Sequence[tuple[str, list[Row]]], prefix: str) -> list[Panel]:
    """The chosen panels of one metric. Panels of one device share their scale."""
    tops: dict[Json, tuple[float, float]] = {}
    for _, rows in chosen:
        for row in rows:
            values = [v for v in (row.get(metric.column), *repeats(row, metric.column)) if v is not None]
            if values:
                low, high = tops.get(_scale_key(view, row), (0.0, 0.0))
                tops[_scale_key(view, row)] = (min(low, *values), max(high, *values))
    return [
        _panel(view, metric, title, rows, tops.get(_scale_key(view, rows[0]), (0.0, 1.0)), f"{prefix}-{i}")
        for i, (title, rows) in enumerate(chosen)
    ]


def _scale_key(view: View, row: Row) -> Json:
    if not any(f.columns == ("device",) for f in view.facets):
        return None
    return row.get("one_device") or row.get("device")


def repeats(row: Row, column: str) -> list[float]:
    """The repeats behind a metric, as the row carries them."""
    text = row.get("samples_json")
    if not isinstance(text, str):
        return []
    from .columns import metric_column

    samples: dict[str, list[float]] = json.loads(text)
    return next((values for name, values in samples.items() if metric_column(name) == column), [])


def _panel(view: View, metric: Metric, title: str, rows: list[Row], scale: tuple[float, float], ident: str) -> Panel:
    note = ""
    marks = rows
    if len(rows) > MAX_MARKS:
        step = -(-len(rows) // MAX_MARKS)
        marks = rows[::step]
        note = f"One point in {step} of {len(rows):,} is drawn, without repeats."
    missing = sum(1 for r in rows if r.get(metric.column) is None)
    points, dots = _data(view, metric, marks, with_repeats=not note)
    low, high = scale
    span = (high - low) or 1.0
    top = high + 0.14 * span
    for p in points:
        if p["y"] is None:
            p["missing"] = high + 0.07 * span
    try:
        drawn = _draw(view, points, dots, (low, top))
    except ValueError as error:  # what the drawing library says when it cannot
        return Panel(title, "", missing, f"This chart could not be drawn: {error}")
    words = _words(view, metric, title, rows)
    return Panel(title, _themed(drawn, ident, words), missing, note)


def _data(view: View, metric: Metric, rows: Iterable[Row], *, with_repeats: bool) -> tuple[list[Any], list[Any]]:
    series = view.series.values if view.series else (None,)
    place = {value: i for i, value in enumerate(view.x.values)}
    real_scale = _has_real_scale(view.x)
    room = min(0.14, 0.6 / len(series))
    points: list[dict[str, Json]] = []
    dots: list[dict[str, Json]] = []
    for row in rows:
        k = series.index(view.series.of(row)) if view.series else 0
        x_value = view.x.of(row)
        x = x_value if real_scale else place[x_value] + (k - (len(series) - 1) / 2) * room
        if x is None:
            continue
        mean, sd = row.get(metric.column), row.get(f"sd.{metric.column.removeprefix('metrics.')}")
        point: dict[str, Json] = {"x": x, "y": mean, "k": k}
        if mean is not None and sd is not None:
            point |= {"low": mean - sd, "high": mean + sd}
        points.append(point)
        if with_repeats and mean is not None:
            dots += [{"x": x, "y": value, "k": k} for value in repeats(row, metric.column)]
    points.sort(key=lambda p: (p["k"], p["x"]))
    return points, dots if len(dots) <= 4 * MAX_MARKS else []


def _has_real_scale(axis: Axis) -> bool:
    return axis.is_numeric and len(axis.values) > MAX_ORDINAL


def _draw(view: View, points: list[Any], dots: list[Any], domain: tuple[float, float]) -> str:
    import altair as alt

    axis, scale = _x_axis(view.x, alt)
    x = alt.X("x:Q", axis=axis, scale=scale, title=view.x.title)
    y = alt.Y("y:Q", scale=alt.Scale(domain=list(domain), nice=False), axis=alt.Axis(tickCount=5), title=None)
    color = alt.Color("k:N", scale=alt.Scale(domain=list(range(7)), range=list(_SERIES)), legend=None)
    shape = alt.Shape("k:N", scale=alt.Scale(domain=list(range(7)), range=list(SHAPES)), legend=None)

    def chart_of(values: list[Any]) -> Any:
        return alt.Chart(alt.Data(values=values))  # type: ignore[no-untyped-call]

    base = chart_of(points).encode(x=x, color=color)
    layers = []
    ordered = view.x.is_numeric
    unique = len({(p["x"], p["k"]) for p in points}) == len(points)
    if ordered and unique:
        # "break-paths": a missing point interrupts the line instead of being drawn over
        line = chart_of(points).mark_line(strokeWidth=1.75, opacity=0.85, invalid="break-paths-show-path-domains")
        layers.append(line.encode(x=x, y=y, color=color, detail="k:N"))
    spread = [p for p in points if "low" in p]
    if spread:
        bar = chart_of(spread).mark_rule(strokeWidth=1.5)
        layers.append(bar.encode(x=x, y=alt.Y("low:Q", title=None), y2="high:Q", color=color))
    if dots:
        dot = chart_of(dots).mark_circle(size=14, opacity=0.5, xOffset=8)
        layers.append(dot.encode(x=x, y=y, color=color))
    layers.append(
        base.transform_filter("isValid(datum.y)").mark_point(filled=True, size=52, opacity=1).encode(y=y, shape=shape)
    )
    if any("missing" in p for p in points):
        cross = base.transform_filter("isValid(datum.missing)").mark_point(
            shape=_CROSS, size=120, strokeWidth=1.75, filled=False, opacity=1
        )
        layers.append(cross.encode(y=alt.Y("missing:Q", title=None)))
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, background="transparent")
    chart = chart.configure(aria=False, font="sans-serif").configure_view(stroke=None)
    chart = chart.configure_axis(
        labelColor=_MUTED, titleColor=_INK, gridColor=_GRID, domainColor=_MUTED, tickColor=_MUTED,
        labelFontSize=12, titleFontSize=12, titleFontWeight="normal", titlePadding=8, labelLimit=110,
    )  # fmt: skip
    buffer = io.StringIO()
    chart.save(buffer, format="svg")
    return buffer.getvalue()


def _x_axis(axis: Axis, alt: Any) -> tuple[Any, Any]:
    if _has_real_scale(axis):
        return alt.Axis(grid=False, tickCount=6), alt.Scale(zero=False, nice=True)
    labels = [axis.shown(v) for v in axis.values]
    step = -(-len(labels) // 40)
    # json.dumps makes a string literal of Vega's expression language: labels are data, never code
    expression = f"({json.dumps(labels)})[round(datum.value)]"
    crowded = sum(map(len, labels)) > 34
    return (
        alt.Axis(
            grid=False,
            values=list(range(0, len(labels), step)),
            labelExpr=expression,
            labelAngle=-35 if crowded else 0,
            labelAlign="right" if crowded else "center",
            labelOverlap=False,
        ),
        alt.Scale(domain=[-0.5, len(labels) - 0.5], nice=False),
    )


_COLOUR: Final = re.compile("|".join(_VARIABLES))
_NOISE: Final = re.compile(r' (?:role|aria-roledescription|aria-hidden|pointer-events|class|font-family)="[^"]*"')
_ID: Final = re.compile(r'(\bid="|url\(#)')


def _themed(svg: str, ident: str, words: str) -> str:
    """The drawing with CSS variables for colours, ids of its own (many drawings share the page) and words for it."""
    from markupsafe import escape

    head, rest = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    if box is None:
        raise ValueError("the drawing has no viewBox")
    rest = _NOISE.sub("", rest)
    rest = _COLOUR.sub(lambda m: f"var({_VARIABLES[m.group()]})", rest)
    rest = _ID.sub(rf"\g<1>{ident}-", rest)
    return f'<svg class="chart" {box.group()} role="img" aria-label="{escape(words)}">{rest}'


def _words(view: View, metric: Metric, title: str, rows: Sequence[Row]) -> str:
    """What the panel shows, for those who cannot see it. The table beside holds every number."""
    what = f"{metric.title}{', ' + metric.unit if metric.unit else ''} by {view.x.title}" + (
        f", {title}" if title else ""
    )

    def name(row: Row) -> str:
        return " ".join(a.named(a.of(row)) for a in (view.series, view.x) if a)

    told = [f"{name(r)}: {figure(r[metric.column])}" for r in rows if r.get(metric.column) is not None]
    gaps = [name(r) for r in rows if r.get(metric.column) is None]
    sentences = [what, _listed(told, "; ")]
    if gaps:
        sentences.append(f"Not measured: {_listed(gaps, ', ')}")
    return ". ".join(s for s in sentences if s) + "."


def _listed(words: Sequence[str], joint: str, limit: int = 12) -> str:
    more = [f"and {count(len(words) - limit, 'more point')}"] if len(words) > limit else []
    return joint.join([*words[:limit], *more])
