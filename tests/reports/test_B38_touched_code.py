"""B38: touching files, editing rules, losing `.snakemake` or copying the folder measures nothing again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plugin.helpers_plugin import COMMON, REPO, LabFolder, Snakemake, open_points

PROFILE = ("--profile", str(REPO / "profiles/lab"))


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


def test_only_a_new_value_is_measured(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    assert lab.run(executor=PROFILE).rc == 0
    assert len(lab.starts) == 4

    def open_now() -> list[str]:
        run = lab.run("-n", executor=PROFILE)
        assert run.rc == 0, run.text
        return open_points(run.text)

    for path in sorted(path for path in lab.folder.rglob("*") if path.is_file() and ".snakemake" not in path.parts):
        os.utime(path)
    assert open_now() == [], "every file touched"
    rule = lab.folder / "rules/measure.smk"
    rule.write_text(rule.read_text().replace("sidewinder measure {output", "sidewinder  measure {output"))
    (lab.folder / "measure.py").write_text("# a comment\n" + (lab.folder / "measure.py").read_text())
    assert open_now() == [], "a rule and a script edited"
    config = yaml.safe_load((lab.folder / "config/lab.yaml").read_text())
    config["policy"] = {"retry": {"max_attempts": 5}}
    lab.configure(config)
    assert open_now() == [], "a key that changes no measurement"
    shutil.rmtree(lab.folder / ".snakemake")
    assert open_now() == [], "without .snakemake"
    copy = tmp_path / "copy"
    shutil.copytree(lab.folder, copy)
    moved = snakemake.start((*PROFILE, *COMMON, "-n"), copy).wait()
    assert open_points(moved.text) == [], "copied elsewhere"
    config["matrix"][0]["threads"] = [1, 2, 4]
    lab.configure(config)
    assert open_now() == ["pi5-4", "xeon-4"]
