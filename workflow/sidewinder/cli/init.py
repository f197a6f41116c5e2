"""`sidewinder init`: a new lab folder, ready for `snakemake --profile profiles/lab`."""

from __future__ import annotations

import argparse
import os
import re
from importlib import resources

from sidewinder.errors import ConfigError

from .lab import OK, add_json_argument, print_json

HELP = "start a lab: Snakefile, profile and a commented config"

# template file -> where it goes in the lab; `@EXPERIMENT@` in a template is the experiment's name
FILES = {
    "Snakefile.in": "Snakefile",
    "lab.yaml.in": "config/lab.yaml",
    "profile.yaml.in": "profiles/lab/config.v9+.yaml",
    "gitignore.in": ".gitignore",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="the new lab's folder; made if it is not there")
    parser.add_argument("--experiment", help="its name (default: the folder's)")
    add_json_argument(parser)


def run(args: argparse.Namespace) -> int:
    """Writes nothing at all where one of its files is there already."""
    folder = args.folder
    experiment = args.experiment or _slug(os.path.basename(os.path.abspath(folder)))
    there = [name for name in FILES.values() if os.path.lexists(os.path.join(folder, name))]
    if there:
        raise ConfigError(
            "these files are there already and are not overwritten",
            key=folder,
            value=", ".join(there),
            hint="name another folder, or edit what is there",
        )
    templates = resources.files("sidewinder.cli").joinpath("lab_template")
    for template, name in FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        text = templates.joinpath(template).read_text("utf-8").replace("@EXPERIMENT@", experiment)
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    made = [os.path.join(folder, name) for name in FILES.values()]
    if args.json:
        print_json({"folder": folder, "experiment": experiment, "files": made})
        return OK
    print("\n".join(f"wrote {path}" for path in made))
    print("\nnext:")
    if os.path.abspath(folder) != os.getcwd():
        print(f"  cd {folder}")
    print("  sidewinder plan                      # what would be measured, where")
    print("  sidewinder doctor                    # can every device do it?")
    print("  snakemake --profile profiles/lab     # measure")
    return OK


def _slug(text: str) -> str:
    """A folder's name as an experiment's name: it becomes a part of paths."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "lab"
