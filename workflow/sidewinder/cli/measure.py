"""``sidewinder measure``: one point (or shard) of a planned sweep, measured now, its record published.

It is what the rule `measure` runs under Snakemake's own executor, and what a person runs to repeat one point. What
counts is the record: the exit code is 0 as soon as one is there, also of a failure; ``--strict`` tells them apart.

Exit codes: 0 a record is there; 1 it could not be written, or the run folder is held by another controller;
2 bad usage; 130 stopped. With ``--strict`` also: 3 the point failed, 4 it was never measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sidewinder.errors import ConfigError, LockHeld, PublishError

if TYPE_CHECKING:
    from sidewinder.engine import Outcome
    from sidewinder.model import Plan

OK, TROUBLE, BAD_USAGE, FAILED, NEVER_MEASURED, STOPPED = 0, 1, 2, 3, 4, 130


class Wanted(NamedTuple):
    root: str
    plan: Plan
    run_ids: tuple[str, ...]
    shard: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", metavar="RECORD", help="where the record (or shard manifest) is to lie")
    parser.add_argument("--run-id", metavar="ID", help="the point, where no path is given")
    parser.add_argument("--folder", metavar="DIR", help="its run folder (the one with plan.json)")
    parser.add_argument("--force", action="store_true", help="measure it again although its record is ok")
    parser.add_argument("--strict", action="store_true", help="exit 3 if the point failed, 4 if it was never measured")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead of sentences")


def run(args: argparse.Namespace) -> int:
    try:
        wanted = _find(args)
    except ConfigError as error:
        print(f"sidewinder measure: {error}", file=sys.stderr)
        return BAD_USAGE
    from sidewinder.engine import run_points

    forced = wanted.run_ids if args.force else ()
    try:
        outcomes = run_points(
            wanted.root,
            wanted.plan,
            wanted.run_ids,
            forced=forced,
            shard=wanted.shard,
            on_event=None if args.json else _print_event,
        )
    except (LockHeld, PublishError, ConfigError) as error:
        print(f"sidewinder measure: {error}", file=sys.stderr)
        return BAD_USAGE if isinstance(error, ConfigError) else TROUBLE
    return _tell(wanted, outcomes, args)


# -- what is wanted


def _find(args: argparse.Namespace) -> Wanted:
    from sidewinder.files import plan as plans

    if args.path is None:
        if args.run_id is None or args.folder is None:
            raise ConfigError("name a record's path, or --run-id and --folder")
        root, kind, name = args.folder, "records", args.run_id
        device = None
    else:
        if args.run_id is not None or args.folder is not None:
            raise ConfigError("a path says all; --run-id and --folder are for when there is none")
        root, kind, device, name = _split(args.path)
    plan = plans.read(root)
    if kind == "shards" and device is not None:
        return Wanted(root, plan, _members(plan, device, name), name)
    point = plan.points.get(name)
    if point is None or (device is not None and point.device != device):
        where = f" on device {device}" if device is not None else ""
        raise ConfigError(f"the plan of {root} has no point {name}{where}", hint=_near(name, plan))
    return Wanted(root, plan, (name,))


def _split(path: str) -> tuple[str, str, str, str]:
    """``(root, "records" | "shards", device, name)`` of a path below a run folder."""
    parts = os.path.normpath(path).split(os.sep)
    if len(parts) >= 3:
        kind, device, file = parts[-3:]
        root = os.sep.join(parts[:-3]) or ("." if len(parts) == 3 else os.sep)
        if kind in ("records", "shards") and file.endswith(".json") and os.path.exists(os.path.join(root, "plan.json")):
            return root, kind, device, file.removesuffix(".json")
    raise ConfigError(
        "not the path of a record below a run folder with a plan.json",
        value=path,
        hint="records lie at RUN_FOLDER/records/DEVICE/RUN_ID.json",
    )


def _members(plan: Plan, device: str, shard: str) -> tuple[str, ...]:
    from sidewinder import ids

    size = max(1, plan.lab.policy.points_per_job)
    mine = [point.run_id for point in plan.points.values() if point.device == device]
    for start in range(0, len(mine), size):
        members = tuple(mine[start : start + size])
        if ids.shard_id(members) == shard:
            return members
    raise ConfigError(f"the plan has no shard {shard} on device {device} (points_per_job: {size})")


def _near(name: str, plan: Plan) -> str | None:
    from difflib import get_close_matches

    near = get_close_matches(name, plan.points, n=1)
    return f"did you mean {near[0]}?" if near else None


# -- what is told


def _print_event(event: Mapping[str, Any]) -> None:
    line = _sentence(event)
    if line:
        print(f"{event['at_utc']} {line}", flush=True)


def _sentence(event: Mapping[str, Any]) -> str | None:
    subject = " ".join(str(event[key]) for key in ("device", "run_id") if key in event)
    match event["kind"]:
        case "started":
            return f"{subject}: attempt {event['attempt']} started"
        case "finished" if event.get("already"):
            return f"{subject}: done already, nothing to measure (--force measures it again)"
        case "finished":
            message = event.get("failure", {}).get("message") or event.get("headline") or ""
            return f"{subject}: {event['outcome']}{': ' if message else ''}{message}"
        case "retry":
            return f"{subject}: {event.get('error')}; next try in {event.get('delay_s', 0):.0f} s"
        case "busy":
            return f"{subject}: waits, the device is busy with {event.get('holder')}"
        case "waiting":
            return f"{subject}: waits: {event.get('reason')}"
        case "waited":
            return (
                f"{subject}: {'is' if event.get('ready') else 'was not'} ready after {event.get('waited_s', 0):.0f} s"
            )
        case "down":
            return f"{subject}: out of reach: {event.get('reason')}"
        case "up":
            return f"{subject}: in reach again: {event.get('reason')}"
        case "moved":
            return f"{subject}: moved {event.get('reason')}"
        case "warning":
            return f"warning: {event['message']}"
    return None


def _tell(wanted: Wanted, outcomes: Mapping[str, Outcome], args: argparse.Namespace) -> int:
    code = _exit_code([outcome.outcome for outcome in outcomes.values()], strict=args.strict)
    if args.json:
        points = {run_id: _as_json(outcome) for run_id, outcome in outcomes.items()}
        print(json.dumps({"folder": wanted.root, "points": points, "exit_code": code}))
    return code


def _as_json(outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {"outcome": outcome.outcome}
    if outcome.failure is not None:
        told["failure"] = {"class": outcome.failure.failure_class.value, "message": outcome.failure.message}
    return told


def _exit_code(outcomes: Sequence[str], *, strict: bool) -> int:
    if "cancelled" in outcomes:
        return STOPPED
    if "unrecorded" in outcomes:
        return TROUBLE
    if not strict:
        return OK
    return NEVER_MEASURED if "hole" in outcomes else FAILED if "failed" in outcomes else OK
