"""`sidewinder unlock`: strike out a controller of another host that a person knows to be gone."""

from __future__ import annotations

import argparse
import sys

from .lab import OK, add_json_argument, print_json

HELP = "take the lock of a run folder from a controller on another host that is gone for good"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a run folder, runs/<experiment>")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """A holder that is seen to live is refused (``LockHeld``): stop it instead."""
    from sidewinder.files import lock

    broken = lock.break_lock(args.folder, lambda text: print(text, file=sys.stderr))
    struck = [f"{one.what} pid {one.pid} on {one.host} since {one.since_utc}" for one in broken]
    if args.json:
        print_json({"struck_out": struck})
    else:
        print("\n".join(f"struck out: {one}" for one in struck) if struck else "nobody held the lock")
    return OK
