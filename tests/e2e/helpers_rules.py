"""An importing workflow with rules of its own on SSH devices, and what such a rule must not leave behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from e2e.helpers_ssh import Sshd
from plugin.helpers_plugin import LabFolder, Run, Snakemake, Started

HEAD = """
import json

module lab:
    snakefile: "lab/Snakefile"
    config: json.load(open("lab.json"))
use rule * from lab as lab_*
"""


class Workflow:
    """An importing workflow whose lab has SSH devices, and no point that anybody asks for."""

    def __init__(self, snakemake: Snakemake, folder: Path, rules: str, **devices: dict[str, Any]) -> None:
        self.lab = LabFolder(snakemake, folder)
        self.folder = folder
        (folder / "lab").mkdir()
        shutil.move(folder / "Snakefile", folder / "lab/Snakefile")
        shutil.move(folder / "rules", folder / "lab/rules")
        config = {
            "experiment": "demo",
            "devices": {name: {"kind": "ssh", **settings} for name, settings in devices.items()},
            "policy": {"retry": {"backoff_s": 0.1}},
            "matrix": [{"backend": "noop", "devices": list(devices)}],
        }
        (folder / "lab.json").write_text(json.dumps(config))
        (folder / "Snakefile").write_text(HEAD + rules)
        (folder / "me").mkdir()

    @property
    def _env(self) -> dict[str, str]:
        return {"HOME": str(self.folder / "me"), "SSH_AUTH_SOCK": ""}

    def run(self, *args: str) -> Run:
        return self.lab.run(*args, env=self._env)

    def start(self, *args: str) -> Started:
        return self.lab.start(*args, env=self._env)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def partials(self) -> list[Path]:
        return list(self.folder.rglob("*.partial"))


def left_on(server: Sshd) -> list[str]:
    """What of runs lies on the device, attempt numbers aside."""
    return sorted(str(path.relative_to(server.state)) for path in server.state.glob("runs/*/*") if path.name != "max")
