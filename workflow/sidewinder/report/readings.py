"""A reading: what lies on disk for one planned point, believed as far as the record is valid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from sidewinder.errors import BrokenRecord
from sidewinder.files import done, records
from sidewinder.files.layout import RunFolder
from sidewinder.model import EMPTY, Json, Plan, Point


@dataclass(frozen=True, slots=True)
class Reading:
    run_id: str
    device: str
    state: records.Status
    record: Mapping[str, Json] = EMPTY  # empty where the state is broken or missing
    point: Point | None = None  # None: not of this plan, work that failover brought to another device
    problem: str | None = None  # why the record is broken
    accepted: str | None = None  # the config's reason to live with this failure

    @property
    def planned(self) -> bool:
        return self.point is not None

    @property
    def done(self) -> bool:
        return done.is_settled(self.state, self.accepted)


def read_all(folder: str, plan: Plan, device: str | None = None) -> Iterator[Reading]:
    """The planned points (of one device) in plan order, then the work that left them for another device."""
    moved: list[tuple[Point, str]] = []
    for point in plan.points.values():
        if device is not None and point.device != device:
            continue
        reading = read_one(folder, point.device, point.run_id, point, plan.lab.accept.get(point.run_id))
        yield reading
        target = reading.record.get("moved_to")
        if isinstance(target, str) and target not in plan.points:
            moved.append((point, target))
    for point, target in moved:
        declared = plan.lab.devices[point.device].failover_to if point.device in plan.lab.devices else ()
        for candidate in dict.fromkeys((*declared, *plan.lab.devices)):
            reading = read_one(folder, candidate, target)
            if reading.state != "missing":
                yield reading
                break


def read_one(folder: str, device: str, run_id: str, point: Point | None = None, accepted: str | None = None) -> Reading:
    path = RunFolder(folder).record(device, run_id)
    problem = None
    record: dict[str, Json] = {}
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        state: records.Status = "missing"
    except (OSError, ValueError) as error:
        state, problem = "broken", f"the record cannot be read: {getattr(error, 'strerror', None) or error}"
    else:
        state = records.status_in(data, run_id)
        if state == "broken":
            problem = _problem(path, run_id)
        else:
            record = json.loads(data)
    # A reason to accept counts for failures only: nothing accepts what is not there or cannot be read.
    kept = accepted if state in _ACCEPTABLE else None
    return Reading(run_id, device, state, record, point, problem, kept)


_ACCEPTABLE: Final = frozenset({"failed", "hole"})


def _problem(path: str, run_id: str) -> str:
    try:
        found = records.read(path)
    except BrokenRecord as error:
        return str(error)
    except (OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    return f"{path} is the record of another point ({found.run_id}), not of {run_id}"
