"""`sidewinder explain`: why one point is not done, and what would unblock it."""

from __future__ import annotations

import argparse
from typing import Any

from sidewinder.errors import BrokenRecord
from sidewinder.labels import Labeller
from sidewinder.model import FailureClass, Plan, Point

from .lab import OK, OPEN, add_lab_arguments, find_point, load_plan, print_json

HELP = "say why a point is not done and what would unblock it"

# What a person can do, by failure class (docs/design.md §3).
ADVICE = {
    FailureClass.TRANSPORT: "the way to the device was lost each time: ask `sidewinder doctor`, start the sweep again",
    FailureClass.PREEMPTED: "somebody else took the machine away each time: start the sweep again when it is free",
    FailureClass.MEMORY: "it does not fit into the memory that this device allows, which is a result: "
    "measure less, allow more, or accept it",
    FailureClass.MEASUREMENT: "the workload itself said no, which is a result and is tried once per sweep: "
    "read its output, mend the cause, start the sweep again, or accept it",
    FailureClass.PARSE: "the workload ran and its output is not what it should be: the raw output is kept, see below",
    FailureClass.CONFIG: "the config asks for what cannot be: change it and start the sweep again",
    FailureClass.DEVICE: "the device is unfit until a person mends it: ask `sidewinder doctor`",
    FailureClass.CANCELLED: "somebody stopped the sweep: start it again",
    FailureClass.INTERNAL: "a bug in Sidewinder: please report it with the journal of the run folder",
    FailureClass.NOT_ATTEMPTED: "it was never measured: start the sweep again",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab_arguments(parser)
    parser.add_argument("run_id", help="a run id, a part of one that fits only one point, or the path of a record")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when the point is done, 1 when it is open."""
    plan = load_plan(args)
    point = find_point(plan, args.run_id)
    story = explain(plan, point)
    if args.json:
        print_json(story)
    else:
        print("\n".join(text_of(story)))
    return OK if story["done"] else OPEN


def explain(plan: Plan, point: Point) -> dict[str, Any]:
    """Everything that the disk knows of one point, and the way out."""
    from sidewinder.files import done as files_done
    from sidewinder.files import journal, lock, records, summary
    from sidewinder.files.layout import RunFolder

    folder = plan.lab.output_dir
    path = RunFolder(folder).record(point.device, point.run_id)
    status = records.status_of(path, point.run_id)
    accepted = plan.lab.accept.get(point.run_id)
    done = files_done.is_settled(status, accepted)
    story: dict[str, Any] = {
        "run_id": point.run_id,
        "device": point.device,
        "label": Labeller.of(plan).label(point),
        "record": path,
        "status": status,
        "done": done,
        "attempts": [],
        "unblock": [],
    }
    if accepted:
        story["accepted"] = accepted
    try:
        record = records.read(path)
    except (BrokenRecord, OSError):
        record = None
    if record is not None:
        story["timestamp_utc"] = record.timestamp_utc
        story["attempts"] = [one.model_dump(by_alias=True, exclude_none=True) for one in record.attempts]
        story["warnings"] = record.warnings
        story["raw"] = record.raw.get("dir")
    if status != "ok":
        hole = next(one for one in _holes(summary.summarise(folder, _only(plan, point))) if one.run_id == point.run_id)
        story |= {"class": hole.failure_class, "reason": hole.reason, "log": list(hole.log)}
    replay = journal.replay(folder)
    flight = replay.in_flight.get(point.run_id)
    if flight is not None:
        story["in_flight"] = flight.n
    alive = [one for one in lock.holders(folder) if not one.is_provably_dead()]
    story["controllers"] = [f"pid {one.pid} on {one.host} since {one.since_utc}" for one in alive]
    story["unblock"] = _ways_out(story, summary.rerun_command(folder, point.device, point.run_id))
    return story


def _only(plan: Plan, point: Point) -> Plan:
    return Plan(plan.lab, {point.run_id: point}, plan.campaign)


def _holes(found: Any) -> list[Any]:
    return [*found.holes, *found.accepted]


def _ways_out(story: dict[str, Any], command: str) -> list[str]:
    if story["done"]:
        return []
    ways = []
    if story["controllers"]:
        ways.append(f"a sweep is running here ({'; '.join(story['controllers'])}): wait for it")
    if "in_flight" in story:
        ways.append(
            f"attempt {story['in_flight']} was started and its end was never seen: the next start asks the device, and "
            "takes its result if it has one"
        )
    if story["status"] == "missing":
        ways.append("it was not started yet: start the sweep")
    elif story["status"] == "broken":
        ways.append("the file is not believed: the next sweep measures the point again")
    else:
        ways.append(ADVICE[FailureClass(story.get("class", FailureClass.MEASUREMENT))])
    ways.append(f"only this point: {command}")
    if story["status"] == "failed":
        ways.append(f'live with it: accept: {{{story["run_id"]}: "your reason"}} in the config')
    return ways


def text_of(story: dict[str, Any]) -> list[str]:
    word = {"ok": "measured", "failed": "failed", "hole": "never measured (a hole)", "missing": "not started"}
    lines = [f"{story['run_id']}", f"  {story['device']}: {story['label']}"]
    state = word.get(story["status"], "its record is broken")
    when = f" at {story['timestamp_utc']}" if story.get("timestamp_utc") else ""
    lines.append(f"  {state}{when}" + ("" if story["done"] else ", open"))
    if story.get("accepted"):
        lines.append(f"  accepted: {story['accepted']}")
    if story.get("reason"):
        lines.append(f"  why ({story['class']}): {story['reason']}")
    lines += [f"    | {line}" for line in story.get("log", [])]
    for one in story["attempts"]:
        error = f", {one['error']}" if one.get("error") else ""
        lines.append(f"  attempt {one.get('n')}: {one.get('outcome')}{error} ({one.get('start_utc', '?')})")
    lines += [f"  warning: {one}" for one in story.get("warnings", [])]
    lines.append(f"  record: {story['record']}")
    if story.get("raw"):
        lines.append(f"  raw output: {story['raw']}")
    if story["unblock"]:
        lines.append("  what would unblock it:")
        lines += [f"    - {one}" for one in story["unblock"]]
    return lines
