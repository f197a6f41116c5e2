"""Evidence: all that a soak left on disk, read once. Nothing here knows what the controller believed but by its files.

``evidence/``: ``soak.json`` (seed, points, clocks, settings), ``faults.jsonl``, ``invocations.jsonl``, ``left.json``
(what was there at the end and must not be), ``witness/<device>/`` (the traces of the workloads); and the run folder
itself.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

EVIDENCE = "evidence"
Json = dict[str, Any]
# What may kill a run or destroy its result, and how long after its end it still may: a node that is back carries out
# only then what was decided about its pods meanwhile.
BACK_S = 45.0
DEADLY: dict[str, float] = {
    "reboot": 0.0,
    "power cut": 0.0,
    "dead for long": 0.0,
    "runner killed": 0.0,
    "evicted": 3.0,
    "deleted": 3.0,
    "deleted at once": 3.0,
    "container killed": 3.0,
    "power cut of a node": 0.0,
    "node dead for long": 0.0,
    "node cut, its pods deleted": BACK_S,
    "node dead, its pods deleted": BACK_S,
}
# Faults of a node, by which it may be found missing: then pods that tolerate it for moments only are evicted.
OF_NODES = (
    "node cut",
    "node cut for long",
    "kubelet killed",
    "kubelet away",
    "power cut of a node",
    "node dead for long",
)
MISSED_S = 10.0


def copy_to(source: Path, folder: Path) -> Path:
    """What a soak left in ``source``, to be spoilt in ``folder``."""
    for name in ("runs", EVIDENCE):
        shutil.copytree(source / name, folder / name, symlinks=True)
    return folder


@dataclass(frozen=True, slots=True)
class Execution:
    """One time that a workload, or what it left behind, really ran. Seconds of the monotonic clock. ``host``: the
    device; ``node`` and ``pod`` (its uid) where it is a pod, as the cluster told the container."""

    host: str
    run: str
    run_id: str
    n: int
    start_s: float
    last_s: float
    complete: bool
    left: bool
    start_ns: int
    node: str = ""
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """``host``: a device, a node, or all of the ``cluster``; ``forgot_s``: when the pods of a node were struck off."""

    kind: str
    host: str
    start_s: float
    end_s: float
    hit: int
    forgot_s: float | None = None


class Evidence:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = json.loads((folder / EVIDENCE / "soak.json").read_text())
        self.seed: int = told["seed"]
        self.points: dict[str, Json] = told["points"]  # by name: device, kind, value, run_id, accepted_s
        self.settings: Json = told["settings"]
        self._wall_minus_monotonic_s: float = told["wall_minus_monotonic_s"]
        self.root = folder / "runs" / "soak"
        self.faults = [Fault(**line) for line in self._lines("faults.jsonl")]
        self.invocations: list[Json] = self._lines("invocations.jsonl")
        self.left: dict[str, list[str]] = json.loads((folder / EVIDENCE / "left.json").read_text())

    def _lines(self, name: str) -> list[Json]:
        return [json.loads(line) for line in (self.folder / EVIDENCE / name).read_text().splitlines()]

    def at_s(self, utc: str) -> float:
        """A time of the controller's clock on the monotonic one."""
        return datetime.fromisoformat(utc).timestamp() - self._wall_minus_monotonic_s

    def wall_to_s(self, wall_s: float) -> float:
        return wall_s - self._wall_minus_monotonic_s

    def log(self, name: str) -> list[Json]:
        """``journal`` or ``retries``. A line that was cut short by a kill costs that line."""
        path, lines = self.root / f"{name}.jsonl", []
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                lines.append(json.loads(line))
            except ValueError:
                continue
        return lines

    @cached_property
    def journal(self) -> list[Json]:
        return self.log("journal")

    @cached_property
    def ledger(self) -> list[Json]:
        return self.log("retries")

    @cached_property
    def records(self) -> dict[tuple[str, str], Json]:
        """By device and run id. A file that is no JSON is ``{}``."""
        found = {}
        for path in (self.root / "records").glob("*/*.json"):
            try:
                found[path.parent.name, path.stem] = json.loads(path.read_bytes())
            except ValueError:
                found[path.parent.name, path.stem] = {}
        return found

    def record_of(self, name: str) -> Json:
        point = self.points[name]
        return self.records.get((point["device"], point["run_id"]), {})

    @cached_property
    def _ended_s(self) -> dict[tuple[str, int], float]:
        ended = [line for line in self.journal if line.get("event") == "ended" and "utc" in line]
        return {(line["run_id"], line["n"]): self.at_s(line["utc"]) for line in ended}

    def published_s(self, device: str, run_id: str) -> float:
        """When its record was there for sure: the journal says so just afterwards; Snakemake touches the file later."""
        path = self.root / "records" / device / f"{run_id}.json"
        attempts = self.records.get((device, run_id), {}).get("attempts", ())
        last = max((attempt["n"] for attempt in attempts), default=0)
        return min(self.wall_to_s(path.stat().st_mtime), self._ended_s.get((run_id, last), math.inf))

    @cached_property
    def executions(self) -> list[Execution]:
        """Of all hosts, in the order of their starts; what was left behind has entries of its own."""
        found = []
        for path in (self.folder / EVIDENCE / "witness").glob("*/*"):
            lines = path.read_text().splitlines()
            if len(lines) < 2 or not lines[1].strip():
                continue  # it was killed while it made the file
            told = json.loads(lines[0])
            found.append(
                Execution(
                    path.parent.name,
                    told["run"],
                    told["run_id"],
                    told["n"],
                    told["start_ns"] / 1e9,
                    int(lines[1]) / 1e9,
                    lines[2:] == ["ended"],
                    bool(told.get("left")),
                    told["start_ns"],
                    told.get("node", ""),
                    told.get("pod", ""),
                )
            )
        return sorted(found, key=lambda one: one.start_s)

    def runs_of(self, run_id: str) -> list[Execution]:
        return [one for one in self.executions if one.run_id == run_id and not one.left]

    def deadly(self, one: Execution, from_s: float, to_s: float) -> list[Fault]:
        """What may have killed that run, or destroyed its result, in that time."""
        return [
            fault
            for fault in self.faults
            if fault.host in (one.host, one.node)
            and fault.start_s <= to_s
            and (after_s := self._deadly_after_s(fault, one)) is not None
            and fault.end_s + after_s >= from_s
        ]

    def _deadly_after_s(self, fault: Fault, one: Execution) -> float | None:
        """None: it does not kill."""
        was_missed = fault.kind in OF_NODES and fault.end_s - fault.start_s > MISSED_S
        if was_missed and one.host in self.settings.get("evicted_soon", ()):
            return BACK_S
        return DEADLY.get(fault.kind)

    def strikes(self, fault: Fault, device: str) -> bool:
        """Whether it befell that device: itself, its node (any, where it may run anywhere), or all of the cluster."""
        if fault.host in self.settings.get("nodes", ()):
            return self.settings["pinned"].get(device, fault.host) == fault.host
        return fault.host in (device, "cluster")
