"""`sidewinder report`: build the report of a run folder from what lies on disk, whatever that is."""

from __future__ import annotations

import argparse
import os

from .lab import OK, OPEN, add_json_argument, print_json

HELP = "build summary/report.html and the tables of a run folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a run folder, runs/<experiment>")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when every planned point is done, 1 when some are open (the report is built all the same)."""
    from sidewinder import report
    from sidewinder.files import plan, summary
    from sidewinder.files.layout import RunFolder

    asked = plan.read(args.folder)
    report.build(args.folder, asked)
    found = summary.summarise(args.folder, asked)
    path = os.path.join(RunFolder(args.folder).summary, "report.html")
    total = found.total
    if args.json:
        print_json(
            {
                "report": path,
                "planned": total.planned,
                "done": total.done,
                "failed": total.failed,
                "never_measured": total.never,
                "accepted": total.accepted,
                "holes": [hole.to_dict() for hole in found.holes],
            }
        )
    else:
        for line in found.lines():
            print(line)
        print(path)
    return OK if found.is_complete else OPEN
