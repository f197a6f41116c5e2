"""`sidewinder devices up`, `down` and `clean`: the pods of a lab, made before a run and removed after it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError, SidewinderError
from sidewinder.model import Device

from .lab import OK, OPEN, add_lab_arguments, load_plan, print_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidewinder.transports.kubernetes_pod import PodLife

KIND = "kubernetes"
ACTIONS = ("up", "down", "clean")

Answer = dict[str, Any]


def add_actions(actions: Any) -> None:
    """The subcommands, beside the others of ``devices``."""
    up = actions.add_parser("up", help="make the pods of these devices and wait until they are ready")
    down = actions.add_parser("down", help="remove the pods of these devices")
    for one in (up, down):
        one.add_argument("names", metavar="NAME", nargs="*", help="devices of kind kubernetes (default: all)")
    clean = actions.add_parser("clean", help="remove every pod that you made in the namespaces of this lab")
    for one in (down, clean):
        one.add_argument("--force", action="store_true", help="also pods that are in use, or that somebody else made")
    for one in (up, down, clean):
        add_lab_arguments(one)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when all went well, 1 when something did not."""
    devices = load_plan(args).lab.devices
    named = list(getattr(args, "names", ())) or [device.id for device in devices.values() if device.kind == KIND]
    for name in named:
        if name not in devices:
            raise ConfigError("no such device", key="NAME", value=name, hint=f"known: {', '.join(devices)}")
        if devices[name].kind != KIND:
            raise ConfigError("has no pod", key=f"devices.{name}", value=devices[name].kind)
    chosen = [devices[name] for name in dict.fromkeys(named)]
    if not chosen:
        print("no device of this lab is a pod", file=sys.stderr)
    work = {"up": _up_all, "down": _down_all, "clean": _clean_all}[args.action]
    found: list[Answer] = asyncio.run(work(chosen, args))
    if args.json:
        print_json({"pods": found})
    return OPEN if any("error" in one for one in found) else OK


@asynccontextmanager
async def life_of(device: Device) -> AsyncIterator[PodLife]:
    """Of a device of kind kubernetes; on stderr why it lasts."""
    from sidewinder.transports import kubernetes_cluster
    from sidewinder.transports.kubernetes_pod import PodLife

    cluster = kubernetes_cluster.enter(device)
    try:
        yield PodLife(device, cluster, lambda why: print(f"{device.id}: {why}", file=sys.stderr, flush=True))
    finally:
        await kubernetes_cluster.leave(cluster)


async def _tried(device: str, work: Callable[[], Awaitable[Answer]], args: argparse.Namespace) -> Answer:
    try:
        found = await work()
    except SidewinderError as error:
        found = {"device": device, "error": str(error)}
        print(str(error), file=sys.stderr, flush=True)
    else:
        if not args.json:
            print(f"{device}: {found['text']}", flush=True)
    return found


async def _up_all(devices: list[Device], args: argparse.Namespace) -> list[Answer]:
    from sidewinder.transports.kubernetes_facts import check_granted

    async def up(device: Device) -> Answer:
        if device.settings.get("image"):  # that is what the command is for, also where a sweep may not make it
            device = replace(device, settings={**device.settings, "create": True})
        async with life_of(device) as life:
            pod, container = await life.ensure()
            check_granted(life, pod)  # a LimitRange may have made another device of it
        text = f"pod {container.pod} is ready on {container.node}"
        return {"device": device.id, "pod": container.pod, "node": container.node, "text": text}

    return await asyncio.gather(*(_tried(one.id, partial(up, one), args) for one in devices))


async def _down_all(devices: list[Device], args: argparse.Namespace) -> list[Answer]:
    return await asyncio.gather(*(_tried(one.id, partial(_down, one, args.force), args) for one in devices))


async def _down(device: Device, force: bool) -> Answer:
    async with life_of(device) as life:
        was_there = await life.remove(force=force)
        text = f"pod {life.name} is removed" if was_there else f"there was no pod {life.name}"
        return {"device": device.id, "pod": life.name, "removed": was_there, "text": text}


async def _clean_all(devices: list[Device], args: argparse.Namespace) -> list[Answer]:
    """Also pods that no device of the config has any more. Those of others stay, unless by force."""
    from sidewinder.transports.kubernetes_pod import owner
    from sidewinder.transports.kubernetes_spec import OWNER
    from sidewinder.transports.kubernetes_verdict import annotation, device_of

    found: dict[tuple[Any, ...], Device] = {}
    failed: list[Answer] = []
    for device in devices:
        place = {key: device.settings.get(key) for key in ("kubeconfig", "context", "namespace")}

        async def look(device: Device = device, place: dict[str, Any] = place) -> Answer:
            async with life_of(device) as life:
                for pod in await life.ours():
                    if args.force or annotation(pod, OWNER) == owner():
                        name = pod["metadata"]["name"]
                        settings = {key: value for key, value in place.items() if value} | {"pod": name}
                        found[(*place.values(), name)] = Device(device_of(pod) or name, KIND, settings=settings)
            return {"device": device.id, "text": "looked"}

        answer = await _tried(device.id, look, argparse.Namespace(json=True))
        failed += [answer] if "error" in answer else []
    return failed + await _down_all(list(found.values()), args)
