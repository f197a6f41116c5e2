"""The board: what the journal says of each device of a lab, and a person's word that one is fit again.

``sidewinder devices`` shows it, ``sidewinder devices release NAME`` gives the word. The journal gets its lines as they
happen, so the board is right beside a running sweep and after a crash.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sidewinder.errors import ConfigError

from .lab import OK, OPEN, load_plan, print_json

_STATES: Final = {"open": "down", "quarantined": "quarantined", "closed": "up"}
NEXT_RUN: Final = "at the start of the next run"


def show(args: argparse.Namespace) -> int:
    """Exit code 1 while a device is down or quarantined."""
    from sidewinder.files import journal, lock, schedule

    lab = load_plan(args).lab
    known = journal.replay(lab.output_dir).breakers
    told = schedule.read(lab.output_dir) or {}
    running = any(not one.is_provably_dead() for one in lock.holders(lab.output_dir))
    board = {name: row(name, known.get(name), told, running) for name in lab.devices}
    if args.json:
        print_json({"folder": lab.output_dir, "running": running, "devices": board})
    else:
        for line in lines(board):
            print(line)
    return OPEN if any(one["state"] in ("down", "quarantined") for one in board.values()) else OK


def row(name: str, entry: Mapping[str, Any] | None, told: Mapping[str, Any], running: bool) -> dict[str, Any]:
    """What is known of one device. ``state``: up, down, quarantined, waits (a run that goes on cannot have it yet), or
    unknown where no run has told."""
    failures = (told.get("device_transport_failures") or {}).get(name)
    # left by a run that was killed it says nothing of now
    waits = (told.get("waiting") or {}).get(name) if running else None
    if waits and (entry is None or entry.get("state") == "closed"):
        return {"state": "waits", **waits, **({"failures": failures} if failures else {})}
    if entry is None:
        used = name in (told.get("by_device") or {})
        return {"state": "up" if used else "unknown", **({"failures": failures} if failures else {})}
    state = _STATES.get(str(entry.get("state")), "unknown")
    found: dict[str, Any] = {"state": state, "since_utc": entry.get("down_since_utc") or entry.get("utc")}
    if state in ("down", "quarantined"):
        found["reason"] = entry.get("reason")
        found["evidence"] = entry.get("evidence")
        found["next_probe"] = (entry.get("next_probe_utc") if running else None) or NEXT_RUN
    found["failures"] = failures
    return {key: value for key, value in found.items() if value}


def lines(board: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    width = max((len(name) for name in board), default=0)
    for name, one in board.items():
        parts = [f"{name.ljust(width)}  {one['state']}"]
        if one["state"] in ("down", "quarantined", "waits"):
            parts[0] += f" since {one.get('since_utc', '?')}"
            parts.append(f"reason: {one.get('reason', 'not known')}")
        if one["state"] in ("down", "quarantined"):
            if one.get("evidence") and str(one["evidence"]) not in str(one.get("reason")):
                parts.append(f"last seen: {one['evidence']}")
            parts.append(f"next probe: {one['next_probe']}; a device that passes it is used again by itself")
            if one["state"] == "quarantined":
                parts.append(f"to have it used without a probe: sidewinder devices release {name}")
        if one.get("failures"):
            parts.append(f"{one['failures']} failures on the way in the last run")
        pad = "\n" + " " * (width + 4)
        yield pad.join(part.replace("\n", pad + "  ") for part in parts)
    if any(one["state"] == "unknown" for one in board.values()):
        yield "unknown: no run has told of it yet; to look now: sidewinder doctor"


def release(args: argparse.Namespace) -> int:
    """The next run takes the device for well. ``LockHeld`` while a run goes on: its core holds the quarantine."""
    from sidewinder.files import journal
    from sidewinder.files.lock import ControllerLock

    lab = load_plan(args).lab
    if args.name not in lab.devices:
        raise ConfigError("no such device", key="NAME", value=args.name, hint=f"known: {', '.join(lab.devices)}")
    lock = ControllerLock(lab.output_dir).acquire()
    try:
        entry = journal.replay(lab.output_dir).breakers.get(args.name, {})
        out = entry.get("state") in ("open", "quarantined")
        if out:
            at_utc = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = journal.breaker(
                args.name, "closed", at_utc, change="released by a person", reason=entry.get("reason")
            )
            writer = journal.Journal(lab.output_dir)
            writer.append(line)
            writer.close()
    finally:
        lock.release()
    if args.json:
        print_json({"device": args.name, "released": out, "reason": entry.get("reason") if out else None})
    elif out:
        print(f"{args.name} is released: the next run uses it at once (it was out because: {entry.get('reason')})")
    else:
        print(f"{args.name} is neither quarantined nor down; nothing was changed")
    return OK
