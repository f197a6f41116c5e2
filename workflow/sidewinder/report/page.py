"""The page: everything that report.html shows, gathered for its template."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

from sidewinder.files import schedule
from sidewinder.files.summary import Hole, Summary
from sidewinder.labels import Labeller
from sidewinder.model import Json, Plan, Point

from . import charts, environment, integrity, nodes, timeline
from .columns import clean
from .tables import Row
from .views import MAX_PANELS, Axis, Metric, View, views
from .words import advice, count, failure_words, figure, seconds, size

MAX_OPEN: Final = 100  # told in full; the others are counted by device and reason
MAX_LISTED: Final = 40  # of any other list
MAX_TABLE_ROWS: Final = 200
MAX_CHARTS: Final = 60  # on the whole page
MAX_VIEWS: Final = 12


@dataclass(frozen=True, slots=True)
class OpenPoint:
    run_id: str
    device: str
    label: str
    words: str
    advice: str
    reason: str
    detail: str
    log: str
    command: str
    attempts: int | None
    moved_to: str


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    sub: str = ""
    value: float | None = None  # what the column sorts by
    is_gap: bool = False
    span: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    metric: Metric
    panels: Sequence[charts.Panel]


@dataclass(frozen=True, slots=True)
class Section:
    ident: str
    view: View
    head: Sequence[tuple[str, str]]  # name, kind ("axis" or "metric")
    table: Sequence[Sequence[Cell]]
    more_rows: int
    figures: Sequence[Figure]
    more_panels: int
    legend: Sequence[tuple[int, str, str]]
    has_missing: bool
    is_compact: bool  # one panel a metric: they stand side by side
    repeats: str  # "5" or "3 to 5", empty where none is known


def render(folder: str, plan: Plan, summary: Summary, rows: Sequence[Row], generated: datetime | None = None) -> str:
    """report.html as text: one file, nothing loaded from anywhere, readable without scripts."""
    import jinja2

    loader = jinja2.PackageLoader("sidewinder.report", "templates")
    env = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    env.undefined = jinja2.StrictUndefined
    # Whatever a record holds, the page is valid: odd characters are replaced where text enters it.
    env.finalize = lambda value: clean(value) if type(value) is str else value
    env.filters |= {"count": count, "figure": figure, "seconds": seconds}
    return env.get_template("report.html.j2").render(_context(folder, plan, summary, rows, generated))


def _context(
    folder: str, plan: Plan, summary: Summary, rows: Sequence[Row], generated: datetime | None
) -> dict[str, Any]:
    by_id = {r["run_id"]: r for r in rows}
    selected = [r for r in rows if plan.is_selected(r["run_id"])]
    labels = _labels(plan, [h.run_id for h in summary.holes])
    opened = [_open_point(h, by_id.get(h.run_id, {}), labels) for h in summary.holes]
    moved_ids = {p.run_id for p in opened if p.moved_to}
    total = summary.total
    at_utc = generated or datetime.now(UTC)
    devices = environment.environments(selected, list(plan.lab.devices), schedule.read(folder), environment.turns(plan))
    return {
        "experiment": clean(plan.lab.experiment) or "sweep",
        "total": total,
        "by_device": summary.by_device,
        "outside": len(plan.points) - total.planned,
        "state_of": _states(total, len(moved_ids)),
        "opened": [p for p in opened if not p.moved_to][:MAX_OPEN],
        "open_count": len(opened) - len(moved_ids),
        "open_groups": _groups([p for p in opened if not p.moved_to]),
        "accepted": [
            (h, clean(plan.lab.accept.get(h.run_id, "")), failure_words(h.failure_class, h.status))
            for h in summary.accepted[:MAX_LISTED]
        ],
        "accepted_count": len(summary.accepted),
        "moved": [(p, by_id.get(p.moved_to)) for p in opened if p.moved_to][:MAX_LISTED],
        "moved_count": len(moved_ids),
        "sections": _sections(selected, plan),
        "more_sections": max(0, len(views(selected, plan)) - MAX_VIEWS),
        "one_machine": [clean(text) for text in environment.one_machine(rows, plan)],
        "nodes": [clean(text) for text in nodes.sentences(selected)],
        "doubts": integrity.doubts(selected),
        "environments": devices,
        "arms": environment.arms(devices, plan),
        "timeline": timeline.timeline(selected, list(plan.lab.devices)),
        "order": _order(selected),
        "retried": _retried(selected),
        "told": _told(selected),
        "plan_warnings": [clean(w) for w in plan.warnings],
        "provenance": _provenance(folder, plan, selected),
        "max_listed": MAX_LISTED,
        "generated": at_utc.strftime("%Y-%m-%d %H:%M:%S UTC"),
        "shapes": _SHAPES,
    }


def _states(total: Any, moved: int) -> list[tuple[str, int, str]]:
    """The parts of the bar below the headline: class, how many, words."""
    parts = [
        ("ok", total.done, "measured"),
        ("accepted", total.accepted, "failed, accepted"),
        ("failed", total.failed, "failed"),
        ("never", total.never - min(moved, total.never), "never measured"),
        ("moved", min(moved, total.never), "moved to another device"),
    ]
    return [p for p in parts if p[1]]


def _labels(plan: Plan, run_ids: Sequence[str]) -> dict[str, str]:
    """Each point by what tells it from the others of its kind: what the kinds differ in says little."""
    kinds: dict[tuple[Json, ...], list[Point]] = {}
    for point in plan.points.values():
        kinds.setdefault((point.backend, point.mode, point.command), []).append(point)
    labellers = {kind: Labeller(points) for kind, points in kinds.items()}
    asked = (plan.points[r] for r in run_ids)
    return {p.run_id: clean(labellers[p.backend, p.mode, p.command].label(p)) for p in asked}


def _open_point(hole: Hole, row: Row, labels: Mapping[str, str]) -> OpenPoint:
    detail = str(row.get("failure", "")) if hole.status == "broken" else ""
    return OpenPoint(
        run_id=hole.run_id,
        device=hole.device,
        label=labels[hole.run_id],
        words=failure_words(hole.failure_class, hole.status),
        advice=advice(hole.failure_class, hole.status),
        reason=clean(hole.reason),
        detail=detail,
        log=clean("\n".join(hole.log)),
        command=clean(hole.command),
        attempts=row.get("attempts"),
        moved_to=row.get("moved_to", ""),
    )


def _groups(opened: Sequence[OpenPoint]) -> list[tuple[str, str, int]]:
    """Open points by device and reason, the largest first."""
    return [(d, w, n) for (d, w), n in Counter((p.device, p.words) for p in opened).most_common()]


# ---------------------------------------------------------------------------------------------------------------------
# one section a kind of measurement


def _sections(rows: Sequence[Row], plan: Plan) -> list[Section]:
    sections, budget = [], MAX_CHARTS
    for i, view in enumerate(views(rows, plan)[:MAX_VIEWS]):
        section = _section(view, f"w{i}", budget)
        budget -= sum(len(f.panels) for f in section.figures)
        sections.append(section)
    return sections


def _section(view: View, ident: str, budget: int) -> Section:
    panels = view.panels()
    figures = []
    drawn = 0
    for m, metric in enumerate(view.charted):
        chosen = panels[: max(0, min(MAX_PANELS, budget - drawn))]
        drawn += len(chosen)
        if chosen:
            figures.append(Figure(metric, charts.panels(view, metric, chosen, f"{ident}m{m}")))
    columns = [m for m in view.metrics if any(r.get(m.column) is not None for r in view.rows)][:10]
    table = [_table_row(view, r, columns) for r in view.rows[:MAX_TABLE_ROWS]]
    counts = sorted({v for r in view.rows for c, v in r.items() if c.startswith("n.")})
    return Section(
        ident=ident,
        view=view,
        head=[*((a.title, "axis") for a in view.axes), *((_head(m), "metric") for m in columns)],
        table=table,
        more_rows=len(view.rows) - len(table),
        figures=figures,
        more_panels=len(panels) - max((len(f.panels) for f in figures), default=0) if figures else 0,
        legend=_legend(view.series),
        has_missing=any(p.missing for f in figures for p in f.panels),
        is_compact=len(figures) > 1 and all(len(f.panels) == 1 for f in figures),
        repeats=f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "",
    )


def _head(metric: Metric) -> str:
    return f"{metric.title}, {metric.unit}" if metric.unit else metric.title


def _legend(series: Axis | None) -> list[tuple[int, str, str]]:
    if series is None:
        return []
    return [(i, charts.SHAPES[i], clean(series.named(v))) for i, v in enumerate(series.values)]


def _table_row(view: View, row: Row, columns: Sequence[Metric]) -> list[Cell]:
    cells = [_axis_cell(a, row) for a in view.axes]
    if columns and all(row.get(m.column) is None for m in columns):
        words = "measured, but no figure was told" if row.get("status") == "ok" else _gap_words(row)
        return [*cells, Cell(words, is_gap=True, span=len(columns))]
    for metric in columns:
        value = row.get(metric.column)
        if value is None:
            cells.append(Cell("not told", is_gap=True))
            continue
        name = metric.column.removeprefix("metrics.")
        sd, n = row.get(f"sd.{name}"), row.get(f"n.{name}")
        sub = f"± {figure(sd, 2)}" if sd is not None else ""
        sub += f" (n {n})" if n is not None else ""
        shown = size(value) if metric.column.endswith("_bytes") else figure(value, 4)
        cells.append(Cell(shown, sub.strip(), float(value)))
    return cells


def _axis_cell(axis: Axis, row: Row) -> Cell:
    value = axis.of(row)
    return Cell(axis.shown(value), value=float(value) if axis.is_numeric and value is not None else None)


def _gap_words(row: Row) -> str:
    return "accepted" if row.get("accepted") else failure_words(row.get("failure_class"), row.get("status"))


_SHAPES: Final[Mapping[str, str]] = {
    "circle": "M8,3a5,5 0 1,0 .01,0z",
    "square": "M3.5,3.5h9v9h-9z",
    "triangle-up": "M8,3l5.5,9.5h-11z",
    "diamond": "M8,2l6,6l-6,6l-6,-6z",
    "triangle-down": "M8,13l5.5,-9.5h-11z",
    "triangle-right": "M13,8l-9.5,5.5v-11z",
    "triangle-left": "M3,8l9.5,5.5v-11z",
}


# ---------------------------------------------------------------------------------------------------------------------
# how it went


def _order(rows: Sequence[Row]) -> dict[str, Json]:
    seen = {(r.get("order_by"), r.get("order_seed")) for r in rows if r.get("order_by")}
    placed = sorted(
        (r for r in rows if r.get("order_position") is not None),
        key=lambda r: (r.get("device", ""), r["order_position"], r["run_id"]),
    )
    return {
        "how": [f"{by} order" + (f", seed {s}" if by == "interleaved" else "") for by, s in sorted(seen, key=str)],
        "rows": placed[:MAX_TABLE_ROWS],
        "more": max(0, len(placed) - MAX_TABLE_ROWS),
    }  # fmt: skip


def _retried(rows: Sequence[Row]) -> dict[str, Json]:
    found = [r for r in rows if r.get("attempts", 0) > 1]
    shown = [(r, [_attempt(a) for a in json.loads(r["attempts_json"])]) for r in found[:MAX_LISTED]]
    return {"count": len(found), "rows": shown}


def _attempt(attempt: Mapping[str, Json]) -> str:
    how = attempt.get("class") or attempt.get("outcome") or "ended"
    why = f", {attempt['error']}" if attempt.get("error") else ""
    return clean(f"{attempt.get('n', '?')}: {how}{why}"[:200])


def _told(rows: Sequence[Row]) -> list[tuple[str, list[str], int]]:
    """Warnings of the records: the same sentence once, with the points that say it."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for line in str(row.get("warnings", "")).split("\n"):
            if line:
                said.setdefault(line, []).append(row["run_id"])
    ranked = sorted(said.items(), key=lambda item: -len(item[1]))
    return [(line, ids[:6], len(ids)) for line, ids in ranked]


def _provenance(folder: str, plan: Plan, rows: Sequence[Row]) -> list[tuple[str, str]]:
    def seen(column: str) -> str:
        counts = Counter(str(r[column]) for r in rows if r.get(column) is not None)
        return ", ".join(v if len(counts) == 1 else f"{v} ({n}×)" for v, n in counts.most_common(5))

    pairs = [
        ("run folder", os.path.normpath(folder)),
        ("campaign", plan.campaign),
        ("points in the plan", f"{len(plan.points):,}"),
        ("Sidewinder, measured with", seen("sidewinder_version")),
        ("Sidewinder, this report", _own_version()),
        ("Snakemake", seen("snakemake_version")),
        ("Python of the controller", seen("controller_python") or ".".join(map(str, sys.version_info[:3]))),
    ]
    return [(name, clean(value)) for name, value in pairs if value]


def _own_version() -> str:
    try:
        return metadata.version("snakemake-executor-plugin-sidewinder")
    except metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return ""
