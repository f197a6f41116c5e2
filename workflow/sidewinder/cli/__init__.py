"""The command line, one module a family of commands.

``cli/<name>.py`` is command ``<name>``: its docstring's first line is the help text, ``add_arguments(parser)`` says
what it takes, ``run(args) -> int`` is the exit code. Only the module of the command that is called is imported.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence

COMMANDS = {
    "init": "start a lab: Snakefile, profile and a commented config",
    "plan": "show what a config asks for",
    "measure": "measure one point and publish its record",
    "explain": "say why a point is not done and what would unblock it",
    "doctor": "look at the devices of a lab",
    "devices": "show which devices are down and why, release one, trust a host key, bring models there, make pods",
    "report": "build the report of a run folder",
    "unlock": "take a run folder's lock from a controller on another host that is gone for good",
    "schema": "print the JSON Schema of a config, for editors",
}
TROUBLE, BAD_USAGE, INTERRUPTED = 1, 2, 130


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
    return _run(importlib.import_module(f"{__name__}.{args.command}").run, args)


def _run(command: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Whatever was raised on purpose is one message and an exit code; only a bug is a traceback."""
    from sidewinder.errors import ConfigError, SidewinderError

    try:
        return command(args)
    except ConfigError as error:
        print(f"sidewinder {args.command}: {error}", file=sys.stderr)
        return BAD_USAGE
    except SidewinderError as error:
        print(f"sidewinder {args.command}: {error}", file=sys.stderr)
        return TROUBLE
    except BrokenPipeError:  # `sidewinder plan | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
