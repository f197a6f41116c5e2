"""A lab on the command line: which config is meant, and the plan that it makes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from sidewinder.errors import ConfigError
from sidewinder.model import Plan, Point

DEFAULT_CONFIG = "config/lab.yaml"

OK, OPEN = 0, 1


def add_lab_arguments(parser: argparse.ArgumentParser) -> None:
    """``--configfile`` (several, as Snakemake takes them) and ``--json``."""
    parser.add_argument(
        "--configfile",
        metavar="FILE",
        nargs="+",
        help=f"the lab's config; several are merged as Snakemake does it (default: {DEFAULT_CONFIG})",
    )
    add_json_argument(parser)


def add_json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of text")


def load_plan(args: argparse.Namespace) -> Plan:
    """The plan of the config that the arguments name. Raises ``ConfigError``."""
    from sidewinder import config

    files = args.configfile or [DEFAULT_CONFIG]
    missing = [name for name in files if not os.path.exists(name)]
    if missing:
        hint = "say --configfile FILE, or start a lab with: sidewinder init DIR"
        raise ConfigError("there is no such config file", value=missing[0], hint=hint)
    return config.load_files(files)


def find_point(plan: Plan, text: str) -> Point:
    """The point whose run id is ``text``, or the only one whose id holds it. Raises ``ConfigError``."""
    name = os.path.basename(text).removesuffix(".json")
    if name in plan.points:
        return plan.points[name]
    found = [run_id for run_id in plan.points if name and name in run_id]
    if len(found) == 1:
        return plan.points[found[0]]
    if not found:
        raise ConfigError("no planned point has this run id", value=text, hint="sidewinder plan lists them")
    few = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
    raise ConfigError(f"{len(found)} planned points fit: {few}", value=text, hint="say more of the run id")


def print_json(value: Mapping[str, Any]) -> None:
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")
