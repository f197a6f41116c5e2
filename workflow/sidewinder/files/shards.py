"""A shard manifest: the one output of a Snakemake job that measures many points (``points_per_job``).

It says which records the job left behind, with a digest of each, so that resume need not read 50 000 files. It is only
a witness: where record and manifest disagree the record wins (``done.py``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import atomic, records
from .layout import RunFolder


class Entry(NamedTuple):
    """What the manifest knows of one record. ``size_bytes`` and ``mtime_ns`` let most records go unread."""

    status: str
    digest: str
    size_bytes: int
    mtime_ns: int


def publish(
    folder: str,
    device: str,
    shard: str,
    run_ids: Sequence[str],
    known: Iterable[records.Published] = (),
    *,
    ops: atomic.FileOps = atomic.REAL,
) -> None:
    """Put the manifest on disk, after all its records. ``known``: what ``publish_many`` just told; the other records
    are read. A point without a record is left out: absent, never a status."""
    layout = RunFolder(folder)
    told = {entry.run_id: entry for entry in known}
    points: dict[str, list[Any]] = {}
    for run_id in run_ids:
        entry = told.get(run_id) or records.entry_of(layout.record(device, run_id), run_id)
        if entry is not None:
            points[run_id] = [entry.status, entry.digest, entry.size_bytes, entry.mtime_ns]
    manifest = {"schema_version": records.SCHEMA_VERSION, "shard": shard, "device": device, "points": points}
    data = json.dumps(manifest, separators=(",", ":")).encode() + b"\n"
    atomic.publish(layout.shard(device, shard), data, what="shard manifest", ops=ops)


def publish_records(
    folder: str,
    device: str,
    shard: str,
    run_ids: Sequence[str],
    new: Mapping[str, Mapping[str, Any]],
    *,
    ops: atomic.FileOps = atomic.REAL,
) -> list[records.Published]:
    """A whole shard at once: the new records with one sync, then its manifest."""
    told = records.publish_many(folder, [(device, run_id, record) for run_id, record in new.items()], ops=ops)
    publish(folder, device, shard, run_ids, told, ops=ops)
    return told


def read(path: str) -> dict[str, Entry]:
    """The entries of one manifest by run id; a torn or foreign manifest has none (its records are then read)."""
    try:
        with open(path, "rb") as file:
            manifest = json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(manifest, dict) or manifest.get("schema_version") != records.SCHEMA_VERSION:
        return {}
    points = manifest.get("points")
    if not isinstance(points, dict):
        return {}
    try:
        return {run_id: Entry(*entry) for run_id, entry in points.items()}
    except TypeError:
        return {}


def read_all(folder: str, devices: Iterable[str]) -> Iterator[tuple[str, Entry]]:
    for device in devices:
        try:
            with os.scandir(f"{folder}/shards/{device}") as entries:
                paths = sorted(entry.path for entry in entries if entry.name.endswith(".json"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        for path in paths:
            yield from read(path).items()
