"""Report: rendering only, from what lies on disk. It is never in the write path of a measurement.

``build`` always succeeds, whatever is missing; the only thing that stops it is a disk that cannot be written to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sidewinder.files import atomic, summary
from sidewinder.files.done import Done
from sidewinder.files.layout import RunFolder
from sidewinder.model import Plan

if TYPE_CHECKING:
    from datetime import datetime

    import pandas as pd

__all__ = ["build", "table"]


def table(folder: str, plan: Plan, device: str, out: str) -> None:
    """Write the points table of one device: a leaf of the tree that ends in ``build``. Raises ``PublishError``."""
    from . import tables

    atomic.publish(out, tables.to_parquet(tables.points(folder, plan, device)), what="table of a device")


def build(
    folder: str, plan: Plan, tables: Sequence[str] | None = None, *, generated: datetime | None = None
) -> summary.Summary:
    """Write ``summary/``: points.parquet, points.csv, holes.json and report.html; what is open is returned.

    ``tables``: what ``table`` wrote for each device, so that 20 000 records are not read twice. A table that is gone,
    unreadable or older than its records is made anew in memory. ``generated``: the time that the page bears (now).
    Raises ``PublishError``.
    """
    from . import page
    from . import tables as points_table

    done = Done(folder, plan)
    found = summary.summarise(folder, plan, done)
    whole = points_table.points(folder, plan) if tables is None else _combined(folder, plan, tables, done)
    where = RunFolder(folder).summary
    files = {
        "points.parquet": points_table.to_parquet(whole),
        "points.csv": points_table.to_csv(whole),
        "holes.json": _holes(plan, found),
        "report.html": page.render(folder, plan, found, points_table.rows_of(whole), generated).encode(),
    }
    for name, data in files.items():
        atomic.publish(os.path.join(where, name), data, what=name)
    return found


def _combined(folder: str, plan: Plan, paths: Sequence[str], done: Done) -> pd.DataFrame:
    """One table of all devices' tables, each believed only where it says of every point what the disk says now."""
    from . import tables

    by_device: dict[str, list[str]] = {}
    for point in plan.points.values():
        by_device.setdefault(point.device, []).append(point.run_id)
    frames: dict[str, pd.DataFrame] = {}
    for path in paths:
        frame = tables.read_parquet(path)
        if frame is None:
            continue
        own = frame[frame["planned"].fillna(False)]
        told = {
            run_id: (status, is_done)
            for run_id, status, is_done in zip(own["run_id"], own["status"], own["done"], strict=True)
        }
        device = next((plan.points[r].device for r in told if r in plan.points), None)
        if device is None or list(told) != by_device[device] or _is_older(path, folder, device, told):
            continue
        if all((done.status(r), done.is_done(r)) == now for r, now in told.items()):
            frames[device] = frame
    parts = [frames[d] if d in frames else tables.points(folder, plan, d) for d in by_device]
    return tables.combine(parts, list(plan.points))


def _is_older(path: str, folder: str, device: str, run_ids: Iterable[str]) -> bool:
    layout = RunFolder(folder)
    made_ns = os.stat(path).st_mtime_ns
    for run_id in run_ids:
        try:
            if os.stat(layout.record(device, run_id)).st_mtime_ns > made_ns:
                return True
        except OSError:  # no record: the status says so
            continue
    return False


def _holes(plan: Plan, found: summary.Summary) -> bytes:
    total = found.total
    value = {
        "experiment": plan.lab.experiment,
        "planned": total.planned,
        "done": total.done,
        "failed": total.failed,
        "never": total.never,
        "accepted_count": total.accepted,
        "by_device": {
            device: {"planned": c.planned, "done": c.done, "failed": c.failed, "never": c.never, "accepted": c.accepted}
            for device, c in found.by_device.items()
        },
        "open": [hole.to_dict() for hole in found.holes],
        "accepted": [{**h.to_dict(), "accepted": plan.lab.accept.get(h.run_id)} for h in found.accepted],
    }
    return json.dumps(value, indent=1, ensure_ascii=True).encode() + b"\n"
