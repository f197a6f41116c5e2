"""A sweep is one lab's plan bound to its run folder, as the rules see it.

The rules ask it for the paths they name and for the marker that tells Snakemake that a product is out of date
(docs/design.md §7, "the record decides"). It takes Snakemake's ``workflow`` and ``config`` as they are and imports
nothing of it: ``error`` is the exception that a Snakefile may raise, ``log`` its logger.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ids
from .errors import ConfigError, PublishError, SidewinderError
from .files import atomic, done, lock, markers, summary
from .files import plan as plans
from .files.layout import RunFolder
from .model import Plan

IN_PROCESS = 5000  # points up to which tables and report are made in the controller itself
FAN_IN = 250  # leaves that one job may depend on: Snakemake's cost per aggregating job grows with their square


def workflow_dir() -> Path:
    """Where the Snakefile and its ``rules/`` lie: inside the package in a wheel, at the top of a source checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_workflow", package.parent.parent):
        if (folder / "rules" / "measure.smk").is_file():
            return folder
    raise ConfigError("the rules of Sidewinder are not installed beside it", hint="install the package again")


def rules_dir() -> str:
    return str(workflow_dir() / "rules")


def snakefile() -> str:
    """What a workflow of one's own imports by `module:`; its config is a whole lab."""
    return f"{rules_dir()}/lab.smk"


@dataclass(frozen=True, slots=True)
class Marker:
    """An input that says "make it again" (``settled`` False) or that has said so once and is to be ignored now."""

    path: str
    settled: bool


class Sweep:
    """One lab in one workflow. Paths in ``names`` are as rules write them; Snakemake puts a module's prefix before."""

    def __init__(
        self,
        workflow: Any,
        config: Mapping[str, Any],
        *,
        error: type[Exception] = SidewinderError,
        log: logging.Logger | None = None,
    ) -> None:
        self.workflow, self.error, self.log = workflow, _alone(error), log or logging.getLogger(__name__)
        self.dry_run = bool(getattr(workflow.output_settings, "dryrun", False))
        self.main_process = bool(workflow.is_main_process)
        self.namespace: str | None = workflow.modifier.namespace
        if self.main_process:
            # The plan, and the DAG that Snakemake makes of it, stay to the end: looking through tens of thousands of
            # them for garbage, again and again while they grow, takes a fifth of the time that a big sweep needs.
            gc.set_threshold(50_000, 20, 100)
        try:
            self.plan = self._load(config)
            self._bind()
        except SidewinderError as problem:
            raise self.error(str(problem)) from None
        except OSError as problem:
            raise self.error(f"the run folder {self.folder.root} cannot be used: {problem}") from None

    def _load(self, config: Mapping[str, Any]) -> Plan:
        from .config import load  # needed by nobody who only asks for rules_dir()

        return load(config, files=tuple(map(str, self.workflow.configfiles)))

    def _bind(self) -> None:
        output_dir = self.plan.lab.output_dir
        # Only while the file is read does `workflow.modifier` belong to this module: real paths are made now.
        real = self.workflow.modifier.path_modifier.modify(self.workflow.pathvars.apply(output_dir))
        self.names = RunFolder(output_dir)
        self.folder = RunFolder(str(real))
        self._register()
        self._warned = False
        self._looked: done.Done | None = None
        if self.main_process and not self.dry_run:
            self._publish_plan()
        self._shards = dict(self._make_shards()) if self.by_shard else {}
        self._leaves = {device: list(leaves) for device, leaves in self._make_leaves() if leaves}
        if self.main_process:
            self._tell()

    def _register(self) -> None:
        """Known to the executor plugin by the real run folder; two labs that share one would mix their results."""
        bound: MutableMapping[str, Sweep] = self.workflow.__dict__.setdefault("sidewinder_sweeps", {})
        root = os.path.abspath(self.folder.root)
        other = bound.get(root)
        # a module's file is read once for each `use rule`: the same plan again is no conflict
        if other is not None and other.plan.points.keys() != self.plan.points.keys():
            raise ConfigError(
                "two labs of this workflow have the same run folder",
                key="output_dir",
                value=self.folder.root,
                hint="give each its own output_dir or experiment, or import one with `prefix:`",
            )
        bound[root] = self

    # -- the plan on disk ----------------------------------------------------------------------------------------------

    def _publish_plan(self) -> None:
        """`plan.json` for the executor and `sidewinder measure`; a live controller's plan is never replaced."""
        root = self.folder.root
        if _held_by_another(root):
            return  # starting work is refused by the lock itself; only looking (`--report`, `--summary`) may go on
        try:
            atomic.probe(root)
            self.publish()
        except PublishError as problem:
            raise PublishError(f"nothing was started: {problem}") from problem

    def publish(self) -> Plan:
        """Put the plan on disk; once more when the run folder's lock is ours, in case another was faster."""
        self.plan = plans.publish(self.folder.root, self.plan)
        return self.plan

    # -- what the rules name -------------------------------------------------------------------------------------------

    @property
    def by_shard(self) -> bool:
        return self.plan.lab.policy.points_per_job > 1

    @property
    def devices(self) -> list[str]:
        """The devices with points to measure in this invocation, in the order of the lab."""
        return list(self._leaves)

    @property
    def local_devices(self) -> list[str]:
        return [device for device in self._leaves if self.plan.lab.devices[device].kind == "local"]

    def pattern(self, kind: str) -> str:
        """The path of `kind` with its wildcards, as a rule declares it."""
        names = RunFolder(self.names.root.replace("{", "{{").replace("}", "}}"))
        return {
            "record": names.record("{device}", "{run_id}"),
            "log": names.log("{device}", "{run_id}"),
            "shard": names.shard("{device}", "{shard}"),
            "shard_log": names.log("{device}", "shard-{shard}"),
            "table": names.table("{device}"),
            "table_log": names.log("{device}", "table"),
            "part": _part(names, "{device}", "{part}"),
        }[kind]

    @property
    def html(self) -> str:
        return f"{self.names.summary}/report.html"

    @property
    def report_log(self) -> str:
        return f"{self.names.root}/logs/report.log"

    @property
    def products(self) -> dict[str, str]:
        """What the report leaves beside the page."""
        summary = self.names.summary
        return {
            "points": f"{summary}/points.parquet",
            "csv": f"{summary}/points.csv",
            "holes": f"{summary}/holes.json",
        }

    def leaves(self, device: str) -> list[str]:
        """The records (or manifests of shards) of one device that this invocation is about."""
        return [self._leaf(self.names, device, leaf) for leaf in self._leaves.get(device, ())]

    def parts(self, device: str) -> list[str]:
        """What a table of `device` is made from: its records, or flags for FAN_IN of them each."""
        leaves = self._leaves.get(device, ())
        if len(leaves) <= FAN_IN:
            return self.leaves(device)
        return [_part(self.names, device, str(number)) for number in range(-(-len(leaves) // FAN_IN))]

    def part_leaves(self, device: str, part: str) -> list[str]:
        leaves = self._leaves.get(device, ())
        return [self._leaf(self.names, device, leaf) for leaf in self._part_of(leaves, part)]

    def table_inputs(self, device: str) -> list[str]:
        """Nothing aggregates beside a measurement on this machine: all that is measured here comes first."""
        local = self.local_devices
        if device in local:
            return list(itertools.chain.from_iterable(map(self.parts, local)))
        return self.parts(device) + [self.names.table(one) for one in local]

    @property
    def tables(self) -> list[str]:
        return [self.names.table(device) for device in self._leaves]

    def any_device(self) -> str:
        """A regular expression that matches each device of the lab literally (B01)."""
        return _literally(self.plan.lab.devices)

    # -- what is open --------------------------------------------------------------------------------------------------

    def open_record(self, device: str, run_id: str) -> Marker | None:
        """For the rule `measure`: why its record is out of date though it is there."""
        self._known(device, run_id)
        return self._marker(
            self.names.marker(device, run_id),
            self.folder.marker(device, run_id),
            self.folder.record(device, run_id),
            self._is_done(device, run_id),
        )

    def open_shard(self, device: str, shard: str) -> Marker | None:
        manifest, real = self.names.shard(device, shard), self.folder.shard(device, shard)
        settled = all(self._is_done(device, run_id) for run_id in self.members(device, shard))
        return self._marker(manifest + ".open", real + ".open", real, settled)

    # Whatever stands on records needs a marker too: Snakemake does not miss a record below a product that is there.

    def missing_of_part(self, device: str, part: str) -> Marker | None:
        below = ((device, leaf) for leaf in self._part_of(self._leaves.get(device, ()), part))
        return self._missing(_part(self.names, device, part), _part(self.folder, device, part), below)

    def missing_of_table(self, device: str) -> Marker | None:
        devices = self.local_devices if device in self.local_devices else [device]
        return self._missing(self.names.table(device), self.folder.table(device), self._below(devices))

    def missing_of_report(self) -> Marker | None:
        return self._missing(self.html, f"{self.folder.summary}/report.html", self._below(self._leaves))

    def _below(self, devices: Iterable[str]) -> Iterator[tuple[str, str]]:
        return ((device, leaf) for device in devices for leaf in self._leaves.get(device, ()))

    def _missing(self, name: str, product: str, below: Iterable[tuple[str, str]]) -> Marker | None:
        settled = True
        for device, leaf in below:
            there = _there(self._leaf(self.folder, device, leaf), mend=self.main_process)
            settled = settled and there
        return self._marker(name + ".missing", product + ".missing", product, settled)

    def has_shard(self, device: str, shard: str) -> bool:
        return (device, shard) in self._shards

    def members(self, device: str, shard: str) -> tuple[str, ...]:
        """The selected points of a shard."""
        try:
            return tuple(run_id for run_id in self._shards[device, shard] if self.plan.is_selected(run_id))
        except KeyError:
            raise self.error(f"there is no shard {shard} of {device} in this plan") from None

    # -- what the rules run --------------------------------------------------------------------------------------------

    def make_table(self, device: str, out: str) -> None:
        from . import renderer, report

        with self._said_by_snakemake():
            if self._is_big:
                renderer.table(self.folder.root, self.plan.selected, device, out)
            else:
                report.table(self.folder.root, self.plan, device, out)

    def make_report(self) -> None:
        from . import renderer, report

        with self._said_by_snakemake():
            if self._is_big:
                renderer.report(self.folder.root, self.plan.selected)
            else:
                report.build(self.folder.root, self.plan)

    @property
    def _is_big(self) -> bool:
        """Whether the controller's memory is worth a second process."""
        return len(self.plan.points) > IN_PROCESS

    @contextlib.contextmanager
    def _said_by_snakemake(self) -> Iterator[None]:
        try:
            yield
        except SidewinderError as problem:
            raise self.error(str(problem)) from None

    # -- how it ended --------------------------------------------------------------------------------------------------

    def open_points(self) -> list[str]:
        """Points that this invocation was asked for and that are not done, looked at anew."""
        asked = self._asked()
        return [run_id for run_id in done.Done(self.folder.root, self.plan).open_points() if asked(run_id)]

    def _asked(self) -> Callable[[str], bool]:
        """Whether a point is below one of the targets: who asks for another rule's output, or for one record, did not
        ask for the whole sweep."""
        dag = getattr(self.workflow, "dag", None)
        if dag is None:
            return lambda _: True
        outputs = {str(output) for job in dag.jobs for output in job.output}
        leaf_of = {run_id: shard for (_, shard), members in self._shards.items() for run_id in members}
        points = self.plan.points

        def asked(run_id: str) -> bool:
            return self._leaf(self.folder, points[run_id].device, leaf_of.get(run_id, run_id)) in outputs

        return asked

    def onsuccess(self) -> None:
        """The exit code is honest: open points are an error unless the lab allows holes (the report is there)."""
        left = self.open_points()
        if not left and os.path.exists(f"{self.folder.summary}/report.html"):
            self.log.info(f"Report: {self.folder.summary}/report.html")
        if not left:
            return
        text = self.open_sentence(left)
        if self.plan.lab.policy.allow_holes:
            self.log.warning(text)
            return
        raise self.error(text)

    def open_sentence(self, left: list[str]) -> str:
        asked = self._asked()
        total = sum(1 for run_id in self.plan.points if self.plan.is_selected(run_id) and asked(run_id))
        shown = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
        return (
            f"{len(left)} of {total} points are open: {shown}. The report {self.folder.summary}/report.html says why; "
            "the same command measures exactly these again."
        )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _is_done(self, device: str, run_id: str) -> bool:
        """A real run looks each time (Snakemake may ask again after a checkpoint); a dry run, or a sweep in shards
        whose manifests are many, looks once."""
        if not (self.dry_run or self.by_shard):
            return done.is_done(self.folder.root, device, run_id, self.plan.lab.accept)
        return self._look().is_done(run_id)

    def _look(self) -> done.Done:
        if self._looked is None:
            self._looked = done.Done(self.folder.root, self.plan)
        return self._looked

    def _known(self, device: str, run_id: str) -> None:
        point = self.plan.points.get(run_id)
        if point is None or point.device != device:
            raise self.error(f"no point {run_id} on device {device} in this plan: `sidewinder plan` lists them")

    def _marker(self, name: str, marker: str, product: str, settled: bool) -> Marker | None:
        if not settled and self.main_process and _there(product, mend=True):
            try:
                markers.touch_newer(marker, product)
            except (OSError, PublishError) as problem:
                self._warn_unwritable(problem)
        return Marker(name, settled) if os.path.exists(marker) else None

    def _warn_unwritable(self, problem: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        self.log.log(
            logging.WARNING if self.dry_run else logging.ERROR,
            f"The run folder {self.folder.root} cannot be written ({problem}): points with a failed record are open, "
            "but Snakemake cannot be told so and does not list them.",
        )

    def _make_shards(self) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
        """Shards are cut from the whole plan, so that a subset has the same ones."""
        by_device: dict[str, list[str]] = {}
        for run_id, point in self.plan.points.items():
            by_device.setdefault(point.device, []).append(run_id)
        size = self.plan.lab.policy.points_per_job
        for device, run_ids in by_device.items():
            for first in range(0, len(run_ids), size):
                members = tuple(run_ids[first : first + size])
                yield (device, ids.shard_id(members)), members

    def _make_leaves(self) -> Iterator[tuple[str, list[str]]]:
        leaves: dict[str, list[str]] = {device: [] for device in self.plan.lab.devices}
        if self.by_shard:
            for (device, shard), members in self._shards.items():
                if any(map(self.plan.is_selected, members)):
                    leaves[device].append(shard)
        else:
            for run_id, point in self.plan.points.items():
                if self.plan.is_selected(run_id):
                    leaves[point.device].append(run_id)
        yield from leaves.items()

    def _leaf(self, folder: RunFolder, device: str, leaf: str) -> str:
        return folder.shard(device, leaf) if self.by_shard else folder.record(device, leaf)

    @staticmethod
    def _part_of(leaves: Iterable[str], part: str) -> list[str]:
        number = int(part)
        return list(leaves)[number * FAN_IN : (number + 1) * FAN_IN]

    def _tell(self) -> None:
        """What the config makes a person think about; and in a dry run, for each device, what Snakemake's listing
        cannot say: what failed and what was never measured."""
        for warning in self.plan.warnings:
            self.log.warning(warning)
        if not self.dry_run:
            return
        for line in summary.summarise(self.folder.root, self.plan, self._look(), details=False).lines():
            self.log.info(line)
        for (device, shard), members in self._shards.items():
            left = [one for one in members if self.plan.is_selected(one) and not self._is_done(device, one)]
            if left:
                self.log.info(f"{device}: open in shard {shard}: {' '.join(left)}")


def bound(workflow: Any) -> dict[str, Sweep]:
    """The sweeps that were bound while this workflow was read, by absolute run folder."""
    return dict(getattr(workflow, "sidewinder_sweeps", {}))


def _alone(error: type[Exception]) -> type[Exception]:
    """The same exception with its message alone: below it Snakemake would print where in here it was raised."""
    # a property, because contextlib assigns to it on the way
    nothing = property(lambda self: None, lambda self, frames: None)
    return type("SidewinderError", (error,), {"__traceback__": nothing})


def _held_by_another(root: str) -> bool:
    return any(
        not holder.is_provably_dead() and not (holder.is_here() and holder.pid == os.getpid())
        for holder in lock.holders(root)
    )


def _part(folder: RunFolder, device: str, part: str) -> str:
    return f"{folder.summary}/parts/{device}/{part}"


def _literally(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))


def _there(path: str, *, mend: bool) -> bool:
    """Whether `path` is there. A time stamp that lies ahead (a copied folder, a corrected clock) is set to now: else
    Snakemake calls every product of it older than its input and deletes it (B12)."""
    try:
        ahead = os.stat(path).st_mtime > time.time() + 1
    except FileNotFoundError:
        return False
    if ahead and mend:
        try:
            os.utime(path)
        except OSError:
            pass
    return True
