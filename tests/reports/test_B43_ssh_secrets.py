"""B43, over SSH: a secret is in the workload's environment and nowhere else, on neither side."""

from __future__ import annotations

import base64
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import Sshd, needs_sshd
from plugin.helpers_plugin import LabFolder, Snakemake

pytestmark = needs_sshd
SECRET = "hf_5ecr3tValueThatNobodyMaySee"
FORMS = (SECRET.encode(), base64.b64encode(SECRET.encode()))
# Says how long the secret is that it has, and stays until the test has looked around.
HOLD = """\
import json, os, sys, time
folder = sys.argv[1]
open(os.path.join(folder, "running"), "w").close()
while not os.path.exists(os.path.join(folder, "seen")): time.sleep(0.01)
print(json.dumps({"has": len(os.environ.get("HF_TOKEN", ""))}))
"""


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Sshd]:
    one = Sshd(tmp_path / "pi5", options=["LogLevel DEBUG3"]).start()
    yield one
    one.stop()


class Watch:
    """Looks at every command line of the machine, all the time."""

    def __init__(self) -> None:
        self.looks, self.found = 0, list[str]()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.looks += 1
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    line = path.read_bytes()
                    if any(form in line for form in FORMS):
                        self.found.append(line.decode(errors="replace"))


def test_the_value_is_in_no_command_line_no_log_and_no_file(snakemake: Snakemake, server: Sshd, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    (lab.folder / "hold.py").write_text(HOLD)
    block: dict[str, Any] = {
        "backend": "command",
        "devices": ["pi5"],
        "command": ["python3", str(lab.folder / "hold.py"), str(lab.folder)],
        "metrics": "json",
    }
    lab.configure(
        {
            "experiment": "demo",
            "devices": {"pi5": {**server.settings(), "secrets": ["HF_TOKEN"]}},
            "matrix": [block],
        }
    )
    with Watch() as watch:
        started = lab.start(env={"HF_TOKEN": SECRET, "HOME": str(tmp_path / "me")})
        while not (lab.folder / "running").exists():
            assert not started.ended.wait(0.05), started.text()
        before = watch.looks
        while watch.looks < before + 3:  # at least twice all around while it runs
            assert not started.ended.wait(0.01), started.text()
        (lab.folder / "seen").touch()
        run = started.wait()
    assert run.rc == 0, run.text
    (record,) = (lab.folder / "runs/demo/records/pi5").glob("*.json")
    assert f'"has":{len(SECRET)}' in record.read_text(), "the workload has it"
    assert watch.found == []
    searched = 0
    for folder in (lab.folder, server.folder):
        for path in (path for path in folder.rglob("*") if path.is_file()):
            searched += 1
            assert not any(form in path.read_bytes() for form in FORMS), path
    assert searched > 20
    assert not any(form.decode() in run.text for form in FORMS)
