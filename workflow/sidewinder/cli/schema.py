"""`sidewinder schema`: the JSON Schema of a config, for editors."""

from __future__ import annotations

import argparse

from .lab import OK, print_json

HELP = "print the JSON Schema of a config, for editors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # nothing to choose


def run(args: argparse.Namespace) -> int:
    del args
    from sidewinder import config

    print_json(config.json_schema())
    return OK
