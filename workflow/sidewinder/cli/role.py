"""`sidewinder devices role`: the manifest that lets an account measure in pods, for `kubectl apply -f -`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError

from .lab import DEFAULT_CONFIG, OK, add_lab_arguments, load_plan, print_json

if TYPE_CHECKING:
    from sidewinder.transports.kubernetes_role import Subject

KIND = "kubernetes"
ACTION = "role"
NOBODY = "# this Role is nobody's yet: with --user NAME (or --group, --serviceaccount) a RoleBinding is printed, too"


def add_action(actions: Any) -> None:
    """The subcommand, beside the others of ``devices``."""
    role = actions.add_parser(ACTION, help="print what an account must be allowed to do: … | kubectl apply -f -")
    role.add_argument(
        "--namespace",
        metavar="NAME",
        action="append",
        help="where pods live (may be repeated; default: the namespaces of the lab)",
    )
    for name, whom in (
        ("user", "who measures, as the API server knows them (`sidewinder doctor` says how)"),
        ("group", "everybody of a group"),
        ("serviceaccount", "an account of a namespace, [NAMESPACE:]NAME"),
    ):
        role.add_argument(f"--{name}", metavar="NAME", action="append", default=[], help=whom)
    role.add_argument("--nodes", action="store_true", help="also a ClusterRole for what records say of nodes")
    add_lab_arguments(role)


def run(args: argparse.Namespace) -> int:
    """Asks no cluster, and needs no config where a namespace is named."""
    from sidewinder.transports import kubernetes_role

    namespaces = args.namespace or _namespaces_of_the_lab(args)
    found = kubernetes_role.manifests(namespaces, _subjects(args, namespaces), nodes=args.nodes)
    if args.json:  # which kubectl takes as well
        print_json({"apiVersion": "v1", "kind": "List", "items": found})
    else:
        print(kubernetes_role.text(found), end="")
    if not (args.user or args.group or args.serviceaccount):
        print(NOBODY, file=sys.stderr)
    return OK


def _namespaces_of_the_lab(args: argparse.Namespace) -> list[str | None]:
    """None: that of the context, which the cluster knows."""
    if not args.configfile and not os.path.exists(DEFAULT_CONFIG):
        return [None]
    devices = load_plan(args).lab.devices.values()
    found = dict.fromkeys(device.settings.get("namespace") for device in devices if device.kind == KIND)
    return list(found) or [None]


def _subjects(args: argparse.Namespace, namespaces: list[str | None]) -> list[Subject]:
    from sidewinder.transports.kubernetes_role import Subject, user

    found = [user(name) for name in args.user] + [Subject("Group", name) for name in args.group]
    for text in args.serviceaccount:
        namespace, _, name = text.rpartition(":")
        home = namespace or (namespaces[0] if len(namespaces) == 1 else None)
        if not home:
            raise ConfigError(
                "in which namespace does this account live?",
                key="--serviceaccount",
                value=text,
                hint=f"say NAMESPACE:{text}",
            )
        found.append(Subject("ServiceAccount", name, home))
    return found
