"""Ordinary jobs that come late to the other executor: by a checkpoint, and again because they failed."""

from __future__ import annotations

from pathlib import Path

from e2e.helpers_handover import ClusterLab
from plugin.helpers_plugin import Snakemake

LATE = """
checkpoint split:
    output: directory("parts")
    shell: "mkdir {output} && touch {output}/1"

rule part:
    input: "parts/{n}"
    output: "part-{n}.txt"
    shell: "if [ -e tried ]; then echo $SITE > {output}; else touch tried; exit 1; fi"

rule gathered:
    input: lambda wildcards: [f"part-{n}.txt" for n in os.listdir(checkpoints.split.get().output[0]) if n == "1"]
    output: "gathered.txt"
    shell: "cat {input} > {output}; echo $SITE >> {output}"
"""


def test_a_checkpoint_brings_more_and_what_failed_is_tried_again(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = ClusterLab(snakemake, tmp_path / "p", LATE)
    run = lab.run("gathered.txt", "--retries", "1")
    assert run.rc == 0, run.text
    assert "Trying to restart job" in run.text
    assert (lab.folder / "gathered.txt").read_text().split() == ["cluster", "cluster"]
    assert len(lab.told("submitted")) == 4
