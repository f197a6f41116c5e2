"""`sidewinder devices`: what a person decides about single devices of a lab."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError, DeviceFault, PublishError
from sidewinder.model import Device

from . import board, pods, role, stage
from .lab import OK, OPEN, add_lab_arguments, load_plan, print_json

if TYPE_CHECKING:
    from asyncssh import SSHKey

    from sidewinder.transports.ssh_target import Target

HELP = "show which devices are down and why, release one, trust a host key, bring models there, make pods"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    enrol = actions.add_parser("enrol", help="show the host key of a device (and of its jump hosts) and trust it")
    enrol.add_argument("name", metavar="NAME", help="a device of the lab")
    enrol.add_argument("--fingerprint", metavar="SHA256:…", help="trust exactly this key, without a question")
    enrol.add_argument("--yes", action="store_true", help="ask nothing; needs --fingerprint")
    add_lab_arguments(enrol)
    board_ = actions.add_parser("list", help="state, reason, evidence and next probe of every device (the default)")
    add_lab_arguments(board_)
    release = actions.add_parser("release", help="say that a device is fit again: the next run uses it at once")
    release.add_argument("name", metavar="NAME", help="a device of the lab")
    add_lab_arguments(release)
    staging = actions.add_parser("stage", help="bring the models that the plan needs and these devices lack")
    staging.add_argument("names", metavar="NAME", nargs="*", help="devices of the lab (default: all)")
    add_lab_arguments(staging)
    pods.add_actions(actions)
    role.add_action(actions)
    add_lab_arguments(parser)


def run(args: argparse.Namespace) -> int:
    match args.action:
        case "enrol":
            return _enrol(args)
        case "release":
            return board.release(args)
        case "stage":
            return stage.run(args)
        case role.ACTION:
            return role.run(args)
        case action if action in pods.ACTIONS:
            return pods.run(args)
        case _:
            return board.show(args)


def _enrol(args: argparse.Namespace) -> int:
    """Exit code 0 when the device is trusted now, 1 when it is not."""
    if args.yes and not args.fingerprint:
        raise ConfigError(
            "--yes alone would trust whoever answers",
            key="--yes",
            hint="say which key: --fingerprint SHA256:…, as the server's console shows it (ssh-keygen -lf)",
        )
    devices = load_plan(args).lab.devices
    device = devices.get(args.name)
    if device is None:
        raise ConfigError("no such device", key="NAME", value=args.name, hint=f"known: {', '.join(devices)}")
    if device.kind != "ssh":
        raise ConfigError("is not reached by SSH, it has no host key", key=f"devices.{device.id}", value=device.kind)
    found = asyncio.run(_walk(device, args))
    if args.json:
        print_json({"device": device.id, "servers": found})
    return OK if all(server["trusted"] for server in found) else OPEN


async def _walk(device: Device, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every server on the way to the device, as far as they are trusted."""
    from sidewinder.transports.ssh_connection import Dialler

    dialler, found = Dialler(device), []
    try:
        async for target, key in dialler.servers():
            if key is None:
                raise DeviceFault(f"{target}: it shows no host key")
            answer = _decide(target, key, args)
            found.append({"server": str(target), "key": _described(key), **answer})
            if not answer["trusted"]:
                break
    finally:
        await dialler.leave()
    return found


def _decide(target: Target, key: SSHKey, args: argparse.Namespace) -> dict[str, Any]:
    from sidewinder.transports.ssh_errors import how_to_compare

    said = sys.stderr if args.json else sys.stdout
    trusted, revoked = target.known.keys_of(target.key_name, target.port)
    if key in revoked:
        raise DeviceFault(f"{target}: the key {_described(key)} is revoked. Give the server a new one")
    if key in trusted:
        print(f"{target}: {_described(key)} is trusted already", file=said)
        return {"trusted": True, "new": False}
    print(f"{target} shows the host key\n  {_described(key)}", file=said)
    if trusted:
        print(f"but known is\n  {', '.join(map(_described, trusted))}", file=said)
        print("Somebody may listen in between. Go on only if you know why it changed.", file=said)
    if args.fingerprint:
        if key.get_fingerprint() != args.fingerprint:
            raise DeviceFault(f"{target}: this is not the key {args.fingerprint}; nothing was trusted")
    elif not _agreed(f"Compare it on the server: {how_to_compare(key)}\nTrust it? [yes/no] ", said):
        print("nothing was trusted", file=said)
        return {"trusted": False, "new": True}
    try:
        target.known.enrol(target.key_name, target.port, key)
    except OSError as error:
        raise PublishError(f"{target.known.own} could not be written: {error.strerror or error}") from error
    print(f"trusted from now on, in {target.known.own}", file=said)
    return {"trusted": True, "new": True}


def _agreed(question: str, said: Any) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            "there is nobody to ask", key="devices enrol", hint="say which key to trust: --fingerprint SHA256:…"
        )
    print(question, end="", file=said, flush=True)
    return sys.stdin.readline().strip().lower() == "yes"


def _described(key: SSHKey) -> str:
    from sidewinder.transports.known_hosts import described

    return described(key)
