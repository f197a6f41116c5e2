"""`sidewinder plan`: what would be measured, where, and what is measured already."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

from sidewinder.model import Point

from .lab import OK, add_lab_arguments, load_plan, print_json

HELP = "show every planned point and what became of it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab_arguments(parser)
    parser.add_argument("--device", help="only points of this device")
    parser.add_argument("--model", help="only points with this model")
    parser.add_argument("--mode", help="only points of this mode")
    parser.add_argument("--limit", type=int, help="only the first N points of what is left")
    parser.add_argument("--open", action="store_true", help="only points that are not done")


def run(args: argparse.Namespace) -> int:
    from sidewinder import config
    from sidewinder.files import done as files_done
    from sidewinder.files import summary

    plan = load_plan(args)
    plan = config.select(plan, device=args.device, model=args.model, mode=args.mode, limit=args.limit)
    folder = plan.lab.output_dir
    done = files_done.Done(folder, plan)
    counts = summary.summarise(folder, plan, done, details=False)
    points = [
        point
        for run_id, point in plan.points.items()
        if plan.is_selected(run_id) and not (args.open and done.is_done(run_id))
    ]
    if args.json:
        print_json(
            {
                "experiment": plan.lab.experiment,
                "folder": folder,
                "devices": {
                    name: {
                        "planned": one.planned,
                        "done": one.done,
                        "failed": one.failed,
                        "never_measured": one.never,
                        "accepted": one.accepted,
                    }
                    for name, one in counts.by_device.items()
                },
                "points": [
                    {
                        "run_id": point.run_id,
                        "device": point.device,
                        "status": done.status(point.run_id),
                        **_axes(point),
                    }
                    for point in points
                ],
                "warnings": list(plan.warnings),
            }
        )
        return OK
    print(f"{plan.lab.experiment}: {counts.total.planned} points in {folder}")
    for line in counts.lines():
        print("  " + line)
    for warning in plan.warnings:
        print(f"warning: {warning}")
    print()
    for line in table(points, {point.run_id: done.status(point.run_id) for point in points}):
        print(line)
    return OK


def table(points: Sequence[Point], statuses: dict[str, str]) -> Iterable[str]:
    """Aligned columns; one that says the same nothing for every point is left out."""
    rows = [
        {"device": point.device, **_axes(point), "status": statuses[point.run_id], "run id": point.run_id}
        for point in points
    ]
    titles = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(title)) for title in titles] for row in rows]
    widths = [max(len(title), *(len(line[i]) for line in cells)) for i, title in enumerate(titles)] if cells else []
    if cells:
        yield "  ".join(title.ljust(width) for title, width in zip(titles, widths, strict=True)).rstrip()
    for line in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


_COLUMNS = (
    ("backend", "backend"),
    ("mode", "mode"),
    ("model", "model"),
    ("threads", "threads"),
    ("prompt_tokens", "prompt"),
    ("output_tokens", "output"),
    ("context_tokens", "context"),
    ("batch_size", "batch"),
    ("governor", "governor"),
    ("freq_khz", "kHz"),
    ("kv_quantization", "kv"),
)


def _axes(point: Point) -> dict[str, object]:
    found = {title: value for name, title in _COLUMNS if (value := getattr(point, name)) is not None}
    return {**found, **point.parameters}


def _cell(value: object) -> str:
    return "" if value is None else str(value)
