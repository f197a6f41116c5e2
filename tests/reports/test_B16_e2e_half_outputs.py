"""B16, the whole stack: half an output of a failed, interrupted or lazy run is never taken for a result downstream."""

from __future__ import annotations

import csv
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_badluck import until
from plugin.helpers_plugin import LabFolder, Snakemake, open_points

# `lazy` ends well and leaves one of its two outputs out until it may; `slow` waits between its first and its last line.
RULES = """
rule lazy:
    output: "lazy-1.txt", "lazy-2.txt"
    resources: device="pi5"
    shell: "echo whole > {output[0]}; if [ -e go ]; then echo whole > {output[1]}; fi"

rule slow:
    output: "slow.txt"
    resources: device="pi5"
    shell: "echo half > {output}; while [ ! -e go ]; do sleep 0.05; done; echo whole > {output}"

rule merge_lazy:
    input: rules.lazy.output
    output: "merged-lazy.txt"
    localrule: True
    shell: "cat {input} > {output}"

rule merge_slow:
    input: rules.slow.output
    output: "merged-slow.txt"
    localrule: True
    shell: "cat {input} > {output}"
"""


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> LabFolder:
    lab = LabFolder(snakemake, tmp_path / "lab")
    # these tests ask for other files than the sweep's, whose points stay open
    lab.configure(lab.lab(devices=["pi5"], policy={"allow_holes": True}))
    with (lab.folder / "Snakefile").open("a") as file:
        file.write(RULES)
    return lab


def test_one_of_two_outputs_with_exit_code_0(lab: LabFolder) -> None:
    run = lab.run("merged-lazy.txt")
    assert run.rc == 1
    assert "lazy-2.txt" in run.text
    assert "Traceback" not in run.text
    assert not (lab.folder / "merged-lazy.txt").exists()
    (lab.folder / "go").touch()
    assert lab.run("merged-lazy.txt").rc == 0
    assert (lab.folder / "merged-lazy.txt").read_text() == "whole\nwhole\n"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_between_write_and_exit(lab: LabFolder, how: signal.Signals) -> None:
    started = lab.start("merged-slow.txt")
    half = lab.folder / "slow.txt"
    until(lambda: (half.exists() and half.read_text() == "half\n") or started.ended.is_set(), "half is written")
    started.kill(how)
    assert started.wait().rc != 0
    assert not (lab.folder / "merged-slow.txt").exists()
    (lab.folder / "go").touch()
    again = lab.run("merged-slow.txt")
    assert again.rc == 0, again.text
    assert (lab.folder / "merged-slow.txt").read_text() == "whole\n"


def test_a_point_that_fails_after_half_its_output_is_open_and_no_figure_of_it_is_kept(lab: LabFolder) -> None:
    script = lab.folder / "measure.py"
    # its figures come first, its failure after
    script.write_text("print('{\"value\": 1}', flush=True)\n" + script.read_text())
    lab.configure(lab.lab(devices=["pi5"]))
    lab.fail("pi5-2")
    assert lab.run().rc == 1
    record = json.loads(lab.record("pi5-2").read_text())
    assert record["failure"]["class"] == "measurement"
    assert "value" not in record["metrics"]
    assert record["raw"]["stdout"].startswith('{"value": 1}'), "kept for people, under a name that no table reads"
    with (lab.folder / "runs/demo/summary/points.csv").open(newline="") as file:
        rows = {row["run_id"]: row for row in csv.DictReader(file)}
    assert len(rows) == 2
    assert rows[record["run_id"]]["status"] == "failed"
    assert open_points(lab.run("-n").text) == ["pi5-2"]
