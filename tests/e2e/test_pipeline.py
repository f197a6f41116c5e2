"""A larger pipeline around a lab: modules, a user's own rules on a device, ordinary rules before and after."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from plugin.helpers_plugin import LabFolder, Snakemake, open_points

PIPELINE = """
import json

module lab:
    snakefile: "lab/Snakefile"
    config: json.load(open("lab.json"))
use rule * from lab as lab_*

rule all:
    default_target: True
    localrule: True
    input: "after.txt"

rule before:
    output: "before.txt"
    log: "before.log"
    shell: "echo ordinary > {output} 2> {log}"

rule probe:
    input: "before.txt"
    output: "probe-{name}.txt"
    resources: device="pi5"
    shell: "cat {input} > {output}; echo {wildcards.name} $PWD >> {output}"

rule after:
    input: "probe-a.txt", "runs/demo/summary/points.csv"
    output: "after.txt"
    shell: "cat {input} > {output}"
"""


def pipeline(snakemake: Snakemake, folder: Path, text: str = PIPELINE) -> LabFolder:
    lab = LabFolder(snakemake, folder)
    (folder / "lab").mkdir()
    shutil.move(folder / "Snakefile", folder / "lab/Snakefile")
    shutil.move(folder / "rules", folder / "lab/rules")
    (folder / "lab.json").write_text(json.dumps(lab.lab(devices=["pi5"])))
    (folder / "Snakefile").write_text(text)
    return lab


def test_own_rules_and_ordinary_rules_around_a_plain_module(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = pipeline(snakemake, tmp_path / "p")
    lab.fail("-2")
    first = lab.run()
    assert (lab.folder / "after.txt").exists(), first.text
    words = (lab.folder / "probe-a.txt").read_text().split()
    assert words == ["ordinary", "a", str(lab.folder)], "a rule with device= on `local` runs in place"
    # no hook is registered for a module: the plugin says it, and the exit code is Snakemake's
    assert "module lab: 1 of 2 points are open" in first.text
    assert open_points(lab.run("-n").text) == ["pi5-2"]
    (lab.folder / "Snakefile").write_text(PIPELINE + "\nonsuccess:\n    lab.onsuccess()\n")
    again = lab.run()
    assert again.rc == 1
    assert "module lab:" not in again.text, "said once, by the hook"
    assert "1 of 2 points are open" in again.text
    lab.fail()
    assert lab.run().rc == 0
    assert "Nothing to be done" in lab.run().text
    assert lab.starts == ["pi5-1", "pi5-2", "pi5-2", "pi5-2"] or sorted(lab.starts) == ["pi5-1"] + ["pi5-2"] * 3


def test_what_cannot_run_on_a_device_is_refused_by_rule_before_anything_runs(
    snakemake: Snakemake, tmp_path: Path
) -> None:
    lab = pipeline(
        snakemake,
        tmp_path / "p",
        PIPELINE
        + """
rule ran:
    output: "ran.txt"
    resources: device="pi5"
    run:
        open(output[0], "w").write("x")

rule scripted:
    output: "scripted.txt"
    resources: device="pi5"
    script: "x.py"

rule lost:
    output: "lost.txt"
    resources: device="pi6"
    shell: "touch {output}"

rule grouped:
    output: "grouped.txt"
    group: "g"
    resources: device="pi5"
    shell: "touch {output}"
""",
    )
    (lab.folder / "x.py").write_text("")
    refused = lab.run("before.txt", "ran.txt", "scripted.txt", "lost.txt", "grouped.txt")
    assert refused.rc == 1
    assert "rule ran: `run:` cannot run on a device" in refused.text
    assert "rule scripted: `script:` cannot run on a device" in refused.text
    assert "rule lost: there is no device 'pi6'" in refused.text
    assert "grouped: jobs of a group cannot run on a device" in refused.text
    assert "Traceback" not in refused.text
    assert not (lab.folder / "before.txt").exists(), "nothing was started"


def test_failing_ordinary_and_device_rules_say_why(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = pipeline(
        snakemake,
        tmp_path / "p",
        PIPELINE
        + """
rule breaks:
    output: "breaks.txt"
    shell: "echo the ordinary reason >&2; exit 3"

rule breaks_there:
    output: "breaks_there.txt"
    resources: device="pi5"
    shell: "echo the reason on the device >&2; exit 3"

rule good:
    output: "good.txt"
    shell: "echo x > {output}"
""",
    )
    run = lab.run("breaks.txt", "breaks_there.txt", "good.txt")
    assert run.rc == 1
    assert "the ordinary reason" in run.text
    assert "the reason on the device" in run.text
    assert (lab.folder / "good.txt").exists(), "the others go on"


def test_a_lab_folder_of_ones_own(snakemake: Snakemake, tmp_path: Path) -> None:
    """`sidewinder init` writes a Snakefile that imports the installed rules; the profile's meaning is the same."""
    lab = LabFolder(snakemake, tmp_path / "own")
    for name in ("Snakefile", "rules", "config"):
        path = lab.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    subprocess.run([str(Path(sys.executable).with_name("sidewinder")), "init", "."], cwd=lab.folder, check=True)
    lab.configure(lab.lab(devices=["pi5"]))
    lab.fail("-2")
    profile = ("--profile", "profiles/lab")
    first = lab.run(executor=profile)
    assert first.rc == 1
    assert "1 of 2 points are open" in first.text
    assert open_points(lab.run("-n", executor=profile).text) == ["pi5-2"]
    lab.fail()
    assert lab.run(executor=profile).rc == 0
