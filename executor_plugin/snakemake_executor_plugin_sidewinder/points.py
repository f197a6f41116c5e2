"""The points of a workflow: which jobs of Snakemake are planned measurements, found by the one output each has."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sidewinder.sweep import Sweep


@dataclass(frozen=True, slots=True)
class PointJob:
    """A job that measures: one point, or the points of a shard. ``key`` names it in here."""

    sweep: Sweep
    device: str
    run_ids: tuple[str, ...]
    shard: str | None = None

    @property
    def root(self) -> str:
        return self.sweep.folder.root


class Points:
    """Finds a job's point. Work is a point exactly if its single output is in the plan of its run folder."""

    def __init__(self, sweeps: Mapping[str, Sweep]) -> None:
        self._folders = [(os.path.normpath(sweep.folder.root) + os.sep, sweep) for sweep in sweeps.values()]

    def of(self, job: Any) -> PointJob | None:
        if job.is_group() or len(job.output) != 1:
            return None
        path = os.path.normpath(str(job.output[0]))
        for prefix, sweep in self._folders:
            if path.startswith(prefix):
                return self._in(sweep, path[len(prefix) :].split(os.sep))
        return None

    def _in(self, sweep: Sweep, parts: list[str]) -> PointJob | None:
        if len(parts) != 3 or not parts[2].endswith(".json"):
            return None
        kind, device, name = parts[0], parts[1], parts[2].removesuffix(".json")
        if kind == "records":
            point = sweep.plan.points.get(name)
            if point is not None and point.device == device:
                return PointJob(sweep, device, (name,))
        elif kind == "shards" and sweep.has_shard(device, name):
            return PointJob(sweep, device, sweep.members(device, name), name)
        return None


class Forced:
    """What the person forces to run again: `-F`, `-R RULE or FILE`, `-f TARGET`.

    Not Snakemake's `reason.forced`: after a crash it also "forces" what was running, and that is no wish to repeat it.
    """

    def __init__(self, settings: Any) -> None:
        self._all = bool(settings.forceall)
        named: Iterable[str] = set(settings.forcerun) | (set(settings.targets) if settings.forcetargets else set())
        self._named = {str(name) for name in named} | {os.path.normpath(str(name)) for name in named}

    def __contains__(self, job: Any) -> bool:
        if self._all or (self._named and job.rule.name in self._named):
            return True
        return bool(self._named) and any(os.path.normpath(str(path)) in self._named for path in job.output)

    def __bool__(self) -> bool:
        return self._all or bool(self._named)
