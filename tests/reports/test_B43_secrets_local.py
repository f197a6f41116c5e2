"""B43, on this machine: a secret is in the workload's environment and nowhere else."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin.helpers_plugin import LabFolder, Snakemake

SECRET = "hf_5ecr3tValueThatNobodyMaySee"
# Says whether it has the secret, and looks at every command line of the machine while it runs.
LOOK = """
import glob, json, os
lines = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        lines.append(open(path, "rb").read().decode(errors="replace"))
    except OSError:
        pass
secret = os.environ.get("HF_TOKEN", "")
print(json.dumps({"has": len(secret), "seen": sum(bool(secret) and secret in line for line in lines)}))
"""


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


def config(lab: LabFolder) -> dict[str, object]:
    (lab.folder / "look.py").write_text(LOOK)
    return {
        "experiment": "demo",
        "devices": {"local": {"secrets": ["HF_TOKEN"]}},
        "matrix": [
            {
                "backend": "command",
                "devices": ["local"],
                "command": [sys.executable, str(lab.folder / "look.py")],
                "metrics": "json",
            }
        ],
    }


def test_the_value_is_in_no_command_line_and_no_file(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(config(lab))
    run = lab.run(env={"HF_TOKEN": SECRET})
    assert run.rc == 0, run.text
    (record,) = (lab.folder / "runs/demo/records/local").glob("*.json")
    text = record.read_text()
    assert f'"has":{len(SECRET)}' in text, "the workload has it"
    assert '"seen":0' in text, "no process shows it on its command line"
    forms = (SECRET.encode(), base64.b64encode(SECRET.encode()))
    for path in (path for path in lab.folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not any(form in data for form in forms), path


def test_a_secret_that_is_missing_is_named_before_anything_starts(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(config(lab))
    run = lab.run("-n")
    assert run.rc == 1
    assert "HF_TOKEN" in run.text
