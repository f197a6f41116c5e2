"""`sidewinder devices stage`: files of this machine that a plan needs elsewhere are brought there before the sweep."""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from typing import Any

from sidewinder.errors import ConfigError, SidewinderError
from sidewinder.model import Device, Plan

from .lab import OK, OPEN, load_plan, print_json

MIB = 1 << 20


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when all files are where they are needed, 1 when one could not be brought."""
    plan = load_plan(args)
    devices = plan.lab.devices
    for name in args.names:
        if name not in devices:
            raise ConfigError("no such device", key="NAME", value=name, hint=f"known: {', '.join(devices)}")
    if _is_measuring(plan):
        print("a sweep is running: what is measured on these devices meanwhile is disturbed", file=sys.stderr)
    found = asyncio.run(_all(plan, [devices[name] for name in args.names or devices], args.json))
    if args.json:
        print_json({"files": found, "ok": _is_well(found)})
    elif not found:
        print("nothing to bring: no model of the plan has `stage` and lacks a path on these devices")
    return OK if _is_well(found) else OPEN


def _is_well(found: list[dict[str, Any]]) -> bool:
    return all(one["outcome"] != "failed" for one in found)


def _is_measuring(plan: Plan) -> bool:
    from sidewinder.files import lock

    return any(not one.is_provably_dead() for one in lock.holders(plan.lab.output_dir))


async def _all(plan: Plan, devices: list[Device], quiet: bool) -> list[dict[str, Any]]:
    """One device after the other: two at once would share this machine's link, and nothing of it can be shown well."""
    return [one for device in devices for one in await _device(plan, device, quiet)]


async def _device(plan: Plan, device: Device, quiet: bool) -> list[dict[str, Any]]:
    from sidewinder.engine import staging
    from sidewinder.engine.devices import DeviceLink, agent_opener

    points = [point for point in plan.points.values() if point.device == device.id]
    wanted = dict.fromkeys(one for point in points for one in staging.wanted_by(plan.lab, point, device))
    if not wanted:
        return []
    # A name of its own: a controller that measures there is not taken for our own past.
    link = DeviceLink(device, agent_opener("stage", f"stage-{uuid.uuid4().hex}"))
    found = []
    try:
        for one in wanted:
            told = await _bring(link, one, quiet)
            found.append(told)
            if not quiet:
                print("\x1b[K" if sys.stderr.isatty() else "", end="", file=sys.stderr, flush=True)
                print(_line(told), flush=True)
    finally:
        await link.close()
    return found


async def _bring(link: Any, wanted: Any, quiet: bool) -> dict[str, Any]:
    from sidewinder.engine import staging

    told: dict[str, Any] = {"device": link.device.id, "file": wanted.file}
    clock = asyncio.get_running_loop().time
    lay_there: int | None = None
    size = 0

    def progress(have: int) -> None:
        nonlocal lay_there, size
        lay_there, size = have if lay_there is None else lay_there, have
        if not quiet and sys.stderr.isatty():
            print(f"\r{link.device.id}: {wanted.file}: {have // MIB} MiB\x1b[K\r", end="", file=sys.stderr, flush=True)

    try:
        parcel = await staging.pack(link, wanted)
        began_s = clock()
        async with link.client() as client:
            told["path"] = await client.stage(parcel.source, parcel.sha256, progress=progress)
    except SidewinderError as error:
        return {**told, "outcome": "failed", "class": error.failure_class.value, "error": str(error)}
    sent = size - (lay_there or 0)  # nobody else asks this client: what was told first is what lay there
    outcome = "there" if not sent and size else "resumed" if lay_there else "sent"
    took_s = {"took_s": round(clock() - began_s, 3)} if sent else {}
    return {**told, "outcome": outcome, "sha256": parcel.sha256, "bytes": size, "sent_bytes": sent, **took_s}


def _line(told: dict[str, Any]) -> str:
    head = f"{told['device']}: {told['file']}: "
    if told["outcome"] == "failed":
        return f"{head}FAILED ({told['class']}) {told['error']}"
    size = told["bytes"] / MIB
    if told["outcome"] == "there":
        return f"{head}there already, {size:.1f} MiB"
    sent = told["sent_bytes"] / MIB
    rest = f", the other {size - sent:.1f} MiB lay there" if told["outcome"] == "resumed" else ""
    return f"{head}sent {sent:.1f} MiB in {told.get('took_s', 0.0):.1f} s{rest}"
