"""A cluster for the plugin `cluster-generic`: jobs run here, each in a session of its own, and say so by $SITE.

The submitting script writes each job's process id to `submitted`, and refuses jobs whose rule is named in REFUSE. A job
whose rule is named in HOLD waits before it starts. `cancel` writes what it is asked to end to `cancelled`, and ends it.
"""

from __future__ import annotations

from pathlib import Path

from e2e.test_pipeline import pipeline
from plugin.helpers_plugin import LabFolder, Run, Snakemake, Started

PATIENCE_S = 300.0
SUBMIT = """\
#!/bin/sh
# {rule} is what Snakemake calls the job; $2 its script
lab={lab}
grep -qsx "$1" $lab/REFUSE && exit 9
SITE=cluster setsid sh -c 'while grep -qsx "$1" $3/HELD; do sleep 0.05; done; exec sh "$2"' job "$1" "$2" $lab \\
  >> $lab/cluster.out 2>&1 < /dev/null &
echo $! | tee -a $lab/submitted
"""
CANCEL = """\
#!/bin/sh
echo "$@" >> {lab}/cancelled
for one in "$@"; do kill -9 -"$one"; done
"""
WORKFLOW = """
import json, os

module lab:
    snakefile: "lab/Snakefile"
    config: json.load(open("lab.json"))
use rule * from lab as lab_*

rule all:
    default_target: True
    localrule: True
    input: "train.txt", "ran.txt", "second.txt", "probe.txt", "here.txt"

rule prepare:
    output: "prepare.txt"
    shell: "echo $SITE > {output}"

rule train:
    input: "prepare.txt", "runs/demo/summary/points.csv"
    output: "train.txt"
    shell: "echo $SITE > {output}"

rule ran:
    output: "ran.txt"
    run:
        open(output[0], "w").write(os.environ.get("SITE", "nowhere"))

rule first:
    output: "first.txt"
    group: "pair"
    shell: "echo $SITE > {output}"

rule second:
    input: "first.txt"
    output: "second.txt"
    group: "pair"
    shell: "cat {input} > {output}; echo $SITE >> {output}"

rule probe:
    input: "prepare.txt"
    output: "probe.txt"
    resources: device="pi5"
    shell: "cat {input} > {output}; echo ${{SITE:-here}} >> {output}"

rule here:
    localrule: True
    output: "here.txt"
    shell: "echo ${{SITE:-here}} > {output}"

rule bad:
    output: "bad.txt"
    shell: "echo no luck >&2; exit 3"

rule after_bad:
    input: "bad.txt"
    output: "after_bad.txt"
    shell: "touch {output}"

onsuccess:
    lab.onsuccess()
"""
LOOKS = ("--seconds-between-status-checks", "1")


class BatchSystem:
    """What submits and cancels, in a folder, and the options that name it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, script in (("submit", SUBMIT), ("cancel", CANCEL)):
            (folder / name).write_text(script.replace("{lab}", str(folder)))
            (folder / name).chmod(0o755)
        self.options = (
            *("--sidewinder-ordinary-executor", "cluster-generic", *LOOKS),
            *("--cluster-generic-submit-cmd", f"{folder}/submit {{rule}}"),
            *("--cluster-generic-cancel-cmd", f"{folder}/cancel"),
        )

    def says(self, name: str, *words: str) -> None:
        (self.folder / name).write_text("".join(f"{word}\n" for word in words))

    def told(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []


class ClusterLab(BatchSystem):
    """A lab in a larger workflow whose ordinary rules are handed to `cluster-generic`."""

    def __init__(self, snakemake: Snakemake, folder: Path, more: str = "") -> None:
        self.lab: LabFolder = pipeline(snakemake, folder, WORKFLOW + more)
        super().__init__(folder)

    def start(self, *args: str) -> Started:
        return self.lab.start(*args, *self.options)

    def run(self, *args: str) -> Run:
        return self.start(*args).wait(PATIENCE_S)
