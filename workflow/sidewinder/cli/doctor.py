"""`sidewinder doctor`: can every device of a lab do what the plan asks of it? Looks, and measures nothing."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from sidewinder import machines, quantity
from sidewinder.errors import ConfigError, SidewinderError
from sidewinder.model import Device, Plan

from .finding import Finding
from .lab import OK, OPEN, add_lab_arguments, load_plan, print_json

HELP = "look whether every device can do what the plan asks of it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab_arguments(parser)
    parser.add_argument("--device", action="append", metavar="NAME", help="only this device (may be repeated)")
    parser.add_argument(
        "--digest", action="store_true", help="also verify declared sha256 of models (reads them whole)"
    )


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when nothing failed, 1 when something did."""
    plan = load_plan(args)
    unknown = [name for name in args.device or [] if name not in plan.lab.devices]
    if unknown:
        raise ConfigError(
            "no such device", key="--device", value=unknown[0], hint=f"known: {', '.join(plan.lab.devices)}"
        )
    findings = [*_folder(plan)]
    if not args.json:
        _print(findings)
    findings += asyncio.run(_all_devices(plan, args))
    if args.json:
        print_json({"findings": [finding._asdict() for finding in findings], "ok": _is_well(findings)})
    else:
        print(_sum(findings))
    return OK if _is_well(findings) else OPEN


def _sum(findings: list[Finding]) -> str:
    """The last line: what it comes to."""
    bad = [finding for finding in findings if finding.verdict == "fail"]
    warned = sum(finding.verdict == "warn" for finding in findings)
    besides = f" ({warned} to know of, marked `warn`)" if warned else ""
    if not bad:
        return f"everything is there{besides}"
    where = ", ".join(dict.fromkeys(finding.where for finding in bad))
    return f"{len(bad)} of {len(findings)} checks failed{besides}; until that is mended, points stay open: {where}"


def _is_well(findings: list[Finding]) -> bool:
    return all(finding.verdict != "fail" for finding in findings)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        text = finding.text.replace("\n", "\n        ")
        print(f"{finding.verdict:>4}  {finding.where}: {finding.what}: {text}", flush=True)


async def _all_devices(plan: Plan, args: argparse.Namespace) -> list[Finding]:
    findings: list[Finding] = []
    seen: dict[str, Mapping[str, Any]] = {}
    used = {point.device for point in plan.points.values()}
    for name, device in plan.lab.devices.items():
        if args.device and name not in args.device:
            continue
        if name not in used:
            findings.append(Finding(name, "points", "warn", "no point of the plan names this device"))
            if not args.json:
                _print(findings[-1:])
            continue
        async for finding in _device(plan, device, args.digest, seen):
            findings.append(finding)
            if not args.json:
                _print([finding])
    same = list(_one_machine(plan, seen))
    if not args.json:
        _print(same)
    return findings + same


def _one_machine(plan: Plan, seen: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    boots = {name: machines.boots_of(facts) for name, facts in seen.items()}
    nodes = {name: machines.node_of(facts) or "" for name, facts in seen.items()}
    for devices in machines.one_machine(machines.turn_groups(plan.lab.devices.values()), boots):
        yield Finding(", ".join(devices), "turns", "warn", machines.sentence(devices, nodes))


# -- the run folder ---------------------------------------------------------------------------------------------------


def _folder(plan: Plan) -> Iterator[Finding]:
    from sidewinder.files import lock

    folder = plan.lab.output_dir
    where = "this machine"
    try:
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
        free = os.statvfs(folder)
        free_bytes = free.f_bavail * free.f_frsize
        verdict = "ok" if free_bytes > 1 << 30 else "warn"
        yield Finding(where, f"run folder {folder}", verdict, f"can be written, {free_bytes / 1e9:.1f} GB free")
    except OSError as error:
        yield Finding(where, f"run folder {folder}", "fail", f"cannot be written: {error.strerror or error}")
        return
    for holder in lock.holders(folder):
        if holder.is_provably_dead():
            continue
        text = f"held by {holder.what} pid {holder.pid} on {holder.host} since {holder.since_utc}"
        yield Finding(where, "lock", "warn", text)
    for warning in plan.warnings:
        yield Finding(where, "config", "warn", warning)


# -- a device ---------------------------------------------------------------------------------------------------------


async def _device(
    plan: Plan, device: Device, digest: bool, seen: dict[str, Mapping[str, Any]]
) -> AsyncIterator[Finding]:
    """What can be seen of one device without measuring: answer, clock, engines, models. ``seen`` gets its facts."""
    from sidewinder.engine.devices import DeviceLink, agent_opener

    from .rights import rights

    link = DeviceLink(device, agent_opener("doctor", f"doctor-{os.getpid()}"))
    link.waiting.told = lambda waiting: _say_waiting(device.id, waiting.reason)
    try:
        found = await rights(device) if device.kind == "kubernetes" else []
        for finding in found:
            yield finding
        if not _is_well(found):
            return
        async with link.client() as client:
            hello = await client.connect()
            seen[device.id] = {"boot_id": hello.boot_id, **link.facts}
            yield Finding(device.id, "agent", "ok", f"answers with Python {hello.python} on {hello.node}")
            remarks = [text for about, text in link.remarks.items() if about != "clock"]
            for finding in _conditions(device, link.facts, link.clock.entry(), remarks):
                yield finding
            for finding in await _engines(plan, device, link):
                yield finding
            for finding in await _models(plan, device, client, digest):
                yield finding
    except SidewinderError as error:
        yield Finding(device.id, "not reached", "fail", str(error))
    finally:
        await link.close()


def _say_waiting(device: str, reason: str | None) -> None:
    """A pod may be waited for as long as its `ready_timeout_s` allows: a person sees why, and may press Ctrl-C."""
    if reason is not None:
        print(f"wait  {device}: {reason}", file=sys.stderr, flush=True)


def _conditions(device: Device, facts: Any, clock: dict[str, Any], remarks: Sequence[str]) -> Iterator[Finding]:
    where = device.id
    cores = facts.get("logical_cores")
    placement = facts.get("placement") or {}
    quota = placement.get("cpu_quota_cores")
    text = f"{facts.get('cpu', 'unknown CPU')}, {cores} logical cores"
    asked = device.settings.get("cpu")
    if quota is not None and asked is not None and abs(quota - float(quantity.parse(str(asked)))) < 0.005:
        yield Finding(where, "cpu", "ok", f"{text}, its quota allows {quota:g} as asked")
    elif quota is not None:
        few = f"{text}, but its quota allows {quota:g}"
        yield Finding(where, "cpu", "warn" if cores and quota < cores else "ok", few)
    else:
        yield Finding(where, "cpu", "ok", text)
    yield from _gpus(where, facts)
    absent = [name for name, has in (facts.get("capabilities") or {}).items() if not has]
    if absent:
        yield Finding(where, "telemetry", "ok", f"not to be had here: {', '.join(sorted(absent))}")
    for text in remarks:
        yield Finding(where, "device", "warn", text)
    if "warning" in clock:
        yield Finding(where, "clock", "warn", clock["warning"])
    elif clock["status"] == "ok":
        yield Finding(where, "clock", "ok", f"{clock['offset_s']:+.6f} s from ours, ± {clock['bound_s']:.6f} s")


def _gpus(where: str, facts: Any) -> Iterator[Finding]:
    for gpu in facts.get("gpus") or ():
        parts = [gpu.get("name", "unknown"), f"index {gpu.get('index', '?')}"]
        parts += [f"{gpu['memory_total_MiB']} MiB"] if "memory_total_MiB" in gpu else []
        parts += [f"limit {gpu['power_limit_W']:g} W"] if "power_limit_W" in gpu else []
        parts += [f"driver {gpu['driver']}"] if "driver" in gpu else []
        yield Finding(where, "gpu", "ok", ", ".join(parts))
    if facts.get("gpus_unknown"):
        yield Finding(where, "gpu", "warn", str(facts["gpus_unknown"]))


async def _engines(plan: Plan, device: Device, link: Any) -> list[Finding]:
    from sidewinder.workloads import registry

    backends = dict.fromkeys(point.backend for point in plan.points.values() if point.device == device.id)
    findings = []
    for backend in backends:
        try:
            found = await link.found(registry.get(backend))
        except SidewinderError as error:
            findings.append(Finding(device.id, f"backend {backend}", "fail", str(error)))
        else:
            text = " ".join(part for part in (found.version, found.binary) if part) or "nothing to look for"
            findings.append(Finding(device.id, f"backend {backend}", "ok", text))
    return findings


async def _staged(device: Device, client: Any, what: str, file: str, declared: str | None, digest: bool) -> Finding:
    """A file of this machine that is brought to the device before its points run there."""
    from sidewinder.engine.staging import source_of
    from sidewinder.transports.staging import digest_of

    source = source_of(file)
    if not source.is_file():
        return Finding(device.id, what, "fail", f"{source} is not on this machine, it cannot be brought there")
    text = f"{file}, {source.stat().st_size / 1e6:.0f} MB"
    if not digest:
        return Finding(device.id, what, "ok", f"{text}, is brought there when it lacks")
    sha256 = await digest_of(source)
    if declared not in (None, sha256):
        return Finding(device.id, what, "fail", f"{source} has sha256 {sha256}, declared is {declared}")
    lies = "lies there already" if await client.staged([sha256]) else "is brought there before its points run"
    return Finding(device.id, what, "ok", f"{text}, {lies}")


async def _models(plan: Plan, device: Device, client: Any, digest: bool) -> list[Finding]:
    from sidewinder.engine import staging
    from sidewinder.engine.devices import path_on

    wanted = {
        (point.model, point.model_path, point.model_sha256)
        for point in plan.points.values()
        if point.device == device.id and point.model_path
    }
    findings = []
    for model, path, sha256 in sorted(wanted, key=str):
        if staging.staged_model(plan.lab.models.get(model or ""), device) is not None:
            findings.append(await _staged(device, client, f"model {model}", path, sha256, digest))
            continue
        real = path_on(device, path)
        seen = (await client.look([real]))[0]
        what = f"model {model}"
        if seen.kind == "unknown":
            findings.append(Finding(device.id, what, "fail", f"could not look at {path}: {seen.detail}"))
        elif seen.kind != "file":
            text = f"{path} is not there" if seen.kind == "absent" else f"{path} is no file"
            findings.append(Finding(device.id, what, "fail", text))
        elif digest and sha256 and (got := await client.digest(real)) != sha256:
            findings.append(Finding(device.id, what, "fail", f"{path} has sha256 {got}, declared is {sha256}"))
        else:
            verified = ", sha256 verified" if digest and sha256 else ""
            findings.append(Finding(device.id, what, "ok", f"{path}, {(seen.size_bytes or 0) / 1e6:.0f} MB{verified}"))
    points = [point for point in plan.points.values() if point.device == device.id and point.stage]
    for one in dict.fromkeys(one for point in points for one in staging.wanted_by(plan.lab, point, device)):
        if one.file in {file for point in points for file in point.stage}:
            findings.append(await _staged(device, client, f"file {one.file}", one.file, None, digest))
    return findings
