"""The pipeline that the docs show, as it stands there, with a batch system in place of Kubernetes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from e2e.helpers_handover import PATIENCE_S, BatchSystem
from plugin.helpers_plugin import REPO, Run, Snakemake


def test_it_prepares_on_a_cluster_measures_on_devices_and_trains_on_a_cluster(
    snakemake: Snakemake, tmp_path: Path
) -> None:
    folder = tmp_path / "pipeline"
    shutil.copytree(REPO / "docs/pipeline", folder)
    batch = BatchSystem(folder)
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def run(*more: str) -> Run:
        command = ["--profile", "profiles/lab", "--nocolor", *batch.options, *more]
        return snakemake.start(command, folder, environ).wait(PATIENCE_S)

    first = run()
    assert first.rc == 0, first.text
    assert len(batch.told("submitted")) == 3, "two jobs prepare, one trains"
    records = list(folder.glob("runs/compression/records/local/*.json"))
    assert len(records) == 4
    for path in records:
        ratio = json.loads(path.read_text())["metrics"]["ratio"]
        assert (ratio > 0.9) == ("noise" in path.name), "measured is what was prepared"
    models = json.loads((folder / "model.json").read_text())
    assert [(one["device"], one["data"], one["points"]) for one in models] == [
        ("local", "data/noise.bin", 2),
        ("local", "data/text.bin", 2),
    ]
    assert "Nothing to be done" in run().text
    # what was prepared is made again: nothing is measured again for that, and what is open is
    before = {path.name: path.read_text() for path in records}
    gone = next(name for name in before if "noise" in name and "level-1" in name)
    (folder / "runs/compression/records/local" / gone).unlink()
    again = run("-R", "prepare")
    assert again.rc == 0, again.text
    after = {path.name: path.read_text() for path in records}
    assert [name for name in before if before[name] != after[name]] == [gone]
