"""The command line, one module a family of commands.

``cli/<name>.py`` is command ``<name>``: its docstring's first line is the help text, ``add_arguments(parser)`` says
what it takes, ``run(args) -> int`` is the exit code. Only the module of the command that is called is imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence

COMMANDS = {
    "init": "start a lab: Snakefile, profile and a commented config",
    "plan": "show what a config asks for",
    "measure": "measure one point and publish its record",
    "explain": "say why a point is not done and what would unblock it",
    "doctor": "look at the devices of a lab",
    "report": "build the report of a run folder",
    "unlock": "strike out a controller that is gone for good",
}
BAD_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="sidewinder", description="Sweeps of measurements on the machines of a lab.")
    parser.add_argument("--version", action="store_true", help="say the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    named = next((word for word in arguments if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        if importlib.util.find_spec(f"{__name__}.{name}") is None:
            continue
        subparser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name == named:
            importlib.import_module(f"{__name__}.{name}").add_arguments(subparser)
    args = parser.parse_args(arguments)
    if args.version:
        from sidewinder import __version__

        print(f"sidewinder {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return BAD_USAGE
    code: int = importlib.import_module(f"{__name__}.{args.command}").run(args)
    return code
