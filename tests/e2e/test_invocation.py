"""One invocation: what it shows, what it narrows, what it repeats, and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from plugin.helpers_plugin import OURS, REFERENCE, LabFolder, Snakemake, open_points, rule_runs
from sidewinder.sweep import FAN_IN


@pytest.fixture(scope="module")
def done(snakemake: Snakemake, tmp_path_factory: pytest.TempPathFactory) -> LabFolder:
    """A lab of which one point has failed."""
    lab = LabFolder(snakemake, tmp_path_factory.mktemp("done") / "lab")
    lab.fail("xeon-2")
    assert lab.run().rc == 1
    return lab


def test_a_dry_run_says_for_each_device_what_is_done_failed_and_never_measured(done: LabFolder) -> None:
    text = done.run("-n").text
    assert re.search(r"^pi5 +2 planned, 2 done, 0 failed, 0 never measured$", text, re.M)
    assert re.search(r"^xeon +2 planned, 1 done, 1 failed, 0 never measured$", text, re.M)


def test_a_subset_narrows_the_same_plan(done: LabFolder) -> None:
    assert open_points(done.run("-n", "--config", "device=pi5").text) == []
    assert open_points(done.run("-n", "--config", "device=xeon").text) == ["xeon-2"]
    narrowed = done.run("--config", "device=pi5")
    assert narrowed.rc == 0, "what is not selected is not open"
    plan = json.loads((done.folder / "runs/demo/plan.json").read_text())
    assert len(plan["points"]) == 4, "the plan on disk is the whole one"


def test_a_subset_of_a_fresh_lab_measures_only_that(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    assert open_points(lab.run("-n", "--config", "device=xeon", "limit=1").text) == ["xeon-1"]
    assert lab.run("--config", "device=xeon", "limit=1").rc == 0
    assert lab.starts == ["xeon-1"]
    assert open_points(lab.run("-n").text) == ["pi5-1", "pi5-2", "xeon-2"]


def test_one_forced_point_is_measured_again_and_the_old_record_is_kept(done: LabFolder) -> None:
    record = done.record("pi5-1")
    old = record.read_bytes()
    before = len(done.starts)
    name = str(record.relative_to(done.folder))
    forced = done.run("-R", name, "--", name)
    assert forced.rc == 0, "only this point was asked for, and it is measured: " + forced.text
    assert done.starts[before:] == ["pi5-1"]
    assert record.read_bytes() != old
    kept = list((done.folder / "runs/demo/superseded/pi5").iterdir())
    assert [path.read_bytes() for path in kept] == [old]


def test_who_asks_for_something_else_is_not_told_of_open_points(done: LabFolder) -> None:
    snakefile = done.folder / "Snakefile"
    rule = (
        '\nrule other:\n    localrule: True\n    output: "other.txt"\n    run:\n        open(output[0], "w").close()\n'
    )
    snakefile.write_text(snakefile.read_text() + rule)
    other = done.run("other.txt")
    assert other.rc == 0, other.text
    assert "are open" not in other.text


def test_a_forced_point_that_fails_leaves_the_ok_record(done: LabFolder) -> None:
    record = done.record("xeon-1")
    old = json.loads(record.read_text())
    name = str(record.relative_to(done.folder))
    done.fail("xeon")
    done.run("-f", name)
    done.fail("xeon-2")
    assert json.loads(record.read_text()) == old


def test_holes_that_the_lab_allows_end_well(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"], policy={"allow_holes": True}))
    lab.fail("pi5-2")
    run = lab.run()
    assert run.rc == 0, run.text
    assert "1 of 2 points are open" in run.text, "allowed is not hidden"
    assert open_points(lab.run("-n").text) == ["pi5-2"]
    run_id = lab.record("pi5-2").stem
    lab.configure(lab.lab(devices=["pi5"], accept={run_id: "the figure is not needed"}))
    # as the profile has it: with Snakemake's default triggers a marker that nobody needs any more is "another input"
    assert open_points(lab.run("-n", "--rerun-triggers", "mtime").text) == []
    assert lab.run("--rerun-triggers", "mtime").rc == 0


@pytest.mark.parametrize("args", [("-n",), ("--lint",), ()], ids=["dry", "lint", "real"])
def test_a_mistake_in_the_config_is_one_message_without_a_traceback(
    snakemake: Snakemake, tmp_path: Path, args: tuple[str, ...]
) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    config = lab.lab()
    config["matrix"][0]["threads"] = [1, "many"]
    lab.configure(config)
    run = lab.run(*args)
    assert run.rc == 1
    assert "config/lab.yaml" in run.text
    assert "threads" in run.text
    assert "many" in run.text
    assert "Traceback" not in run.text
    assert "sweep.py" not in run.text, "no frames of ours"
    assert not (lab.folder / "runs").exists()


def test_settings_are_checked_in_a_dry_run_too(done: LabFolder) -> None:
    run = done.run("-n", "--sidewinder-stop-timeout", "0")
    assert run.rc == 1
    assert "--sidewinder-stop-timeout must be 1 to 600 seconds" in run.text


def test_two_labs_of_one_run_folder_are_refused(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    (lab.folder / "outer").write_text(
        f"""
module a:
    snakefile: "Snakefile"
    config: {lab.lab(devices=["pi5"])!r}
use rule * from a as a_*
module b:
    snakefile: "Snakefile"
    config: {lab.lab(devices=["xeon"])!r}
use rule * from b as b_*
"""
    )
    run = lab.run("-n", "-s", "outer")
    assert run.rc == 1
    assert "two labs of this workflow have the same run folder" in run.text


def test_both_executors_give_the_same_points(done: LabFolder, snakemake: Snakemake, tmp_path: Path) -> None:
    reference = LabFolder(snakemake, tmp_path / "reference", done.lab())
    reference.configure({**reference.lab(), "matrix": done.lab()["matrix"]})  # the same commands: the same identity
    assert reference.run(executor=REFERENCE).rc == 1

    def facts(lab: LabFolder) -> dict[str, tuple[str, list[str]]]:
        records = [json.loads(path.read_text()) for path in (lab.folder / "runs/demo/records").glob("*/*.json")]
        return {record["run_id"]: (record["status"], sorted(record.get("metrics", {}))) for record in records}

    assert facts(reference) == facts(done)


def test_shards_measure_only_their_open_points(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"], threads=[1, 2, 3], points_per_job=2))
    lab.fail("pi5-2")
    failed = lab.run(executor=OURS)
    assert failed.rc == 1
    assert "sweep.py" not in failed.text, "no frames of ours below the sentence about open points"
    dry = lab.run("-n").text
    run_id = lab.record("pi5-2").stem
    assert re.search(rf"^pi5: open in shard [0-9a-f]{{12}}: {run_id}$", dry, re.M), dry
    assert dry.count("rule measure:") == 1
    lab.fail()
    assert lab.run().rc == 0
    assert sorted(lab.starts) == ["pi5-1", "pi5-2", "pi5-2", "pi5-3"]
    lab.record("pi5-3").unlink()
    assert lab.run("-n").text.count("rule measure:") == 1
    assert lab.run().rc == 0
    assert lab.starts[-1] == "pi5-3"
    assert "Nothing to be done" in lab.run().text


def test_device_names_are_matched_literally(snakemake: Snakemake, tmp_path: Path) -> None:
    """B01: dots, dashes and underscores; one name that a careless pattern takes for another."""
    lab = LabFolder(snakemake, tmp_path / "lab")
    devices = ["rig-07.lab", "rig-07xlab", "7b-9_2", "7b-9_2.a"]
    lab.configure(lab.lab(devices=devices, threads=[1]))
    run = lab.run("-n")
    assert open_points(run.text) == sorted(f"{device}-1" for device in devices)
    assert f"wildcards: device=rig-07.lab, run_id={_run_id(run.text, 'rig-07.lab')}" in run.text


def _run_id(text: str, device: str) -> str:
    (found,) = re.findall(rf"records/{re.escape(device)}/([a-z0-9-]+)\.json \(update\)", text)
    return str(found)


def test_many_records_reach_the_report_by_parts(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    count = FAN_IN + 10
    lab.configure(
        {
            "experiment": "demo",
            "devices": {"local": {}},
            "matrix": [{"backend": "noop", "devices": ["local"], "parameters": {"n": list(range(count))}}],
        }
    )
    assert rule_runs(lab.run("-n").text, "part") == 2
    first = lab.run()
    assert first.rc == 0, first.text
    records = sorted((lab.folder / "runs/demo/records/local").glob("*.json"))
    assert len(records) == count
    assert "Nothing to be done" in lab.run("-n").text
    records[-1].unlink()
    listed = lab.run("-n").text
    assert rule_runs(listed, "measure") == 1
    assert (rule_runs(listed, "part"), rule_runs(listed, "table"), rule_runs(listed, "report")) == (1, 1, 1)
    assert lab.run().rc == 0
    assert "Nothing to be done" in lab.run("-n").text
