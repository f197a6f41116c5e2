"""The record decides what is open: step by step, under our executor and under Snakemake's own (docs/design.md §7)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from plugin.helpers_plugin import OURS, REFERENCE, LabFolder, Snakemake, open_points

MTIME = ("--rerun-triggers", "mtime")
FAILING = ["pi5-2", "xeon-2"]


class Checks:
    """Collects what is wrong, so that one long story tells all of it."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def __call__(self, what: str, got: object, wanted: object) -> None:
        if got != wanted:
            self.wrong.append(f"{what}: got {got!r}, wanted {wanted!r}")


@pytest.mark.parametrize("executor", [OURS, REFERENCE], ids=["sidewinder", "reference"])
def test_the_record_decides(snakemake: Snakemake, tmp_path: Path, executor: Sequence[str]) -> None:
    lab, check = LabFolder(snakemake, tmp_path / "lab"), Checks()

    def open_now(*args: str, where: LabFolder = lab) -> list[str]:
        return open_points(where.run("-n", *args, executor=executor).text)

    lab.fail("-2")
    first = lab.run(executor=executor)
    check("first run, two fail: rc", first.rc, 1)
    check("report made", (lab.folder / "runs/demo/summary/report.html").exists(), True)
    check("says how many are open", "2 of 4 points are open" in first.text, True)
    check("open", open_now(), FAILING)
    for again in (2, 3):
        check(f"run {again}: rc", lab.run(executor=executor).rc, 1)
        check(f"run {again}: open", open_now(), FAILING)
        check(f"run {again}: open, mtime only", open_now(*MTIME), FAILING)
    check("only the open ones ran again", lab.starts.count("pi5-1"), 1)
    check("all open ones ran again", lab.starts.count("pi5-2"), 3)
    shutil.move(lab.folder / ".snakemake", lab.folder / "keep")
    check("open without .snakemake", open_now(), FAILING)
    shutil.rmtree(lab.folder / ".snakemake")
    shutil.move(lab.folder / "keep", lab.folder / ".snakemake")
    check("open, target the report", open_now("runs/demo/summary/report.html"), FAILING)

    lab.fail()
    check("mended: rc", lab.run(executor=executor).rc, 0)
    check("mended: open", open_now(), [])
    check("mended: open, mtime only", open_now(*MTIME), [])
    again = lab.run(executor=executor)
    check("nothing to do: rc", again.rc, 0)
    check("nothing to do: said", "Nothing to be done" in again.text, True)

    copy = tmp_path / "copy"
    shutil.copytree(lab.folder, copy)
    shutil.rmtree(copy / ".snakemake")
    for path in sorted(path for path in (copy / "runs").rglob("*") if path.is_file()):
        os.utime(path)
    touched = LabFolder(snakemake, copy, lab.lab())
    check("all files touched, no .snakemake: open, mtime", open_now(*MTIME, where=touched), [])
    check("all files touched, no .snakemake: open", open_now(where=touched), [])

    record = lab.record("pi5-2")
    aside = record.read_bytes()
    record.unlink()
    check("one record deleted", open_now(), ["pi5-2"])
    check("one record deleted, mtime", open_now(*MTIME), ["pi5-2"])
    record.write_bytes(aside)
    check("put back", open_now(), [])
    failed = lab.record("xeon-1")
    failed.write_text(failed.read_text().replace('"status":"ok"', '"status":"failed"'))
    check("set to failed by hand", open_now(), ["xeon-1"])
    failed.write_text('{"stat')
    check("torn", open_now(), ["xeon-1"])
    check("measured again: rc", lab.run(executor=executor).rc, 0)
    check("measured again: open", open_now(), [])
    for path in ("Snakefile", "measure.py", "rules/measure.smk"):
        os.utime(lab.folder / path)
    check("code touched: open", open_now(), [])
    assert not check.wrong, "\n".join(check.wrong)


@pytest.mark.parametrize("executor", [OURS, REFERENCE], ids=["sidewinder", "reference"])
def test_two_labs_in_modules(snakemake: Snakemake, tmp_path: Path, executor: Sequence[str]) -> None:
    lab, check = LabFolder(snakemake, tmp_path / "big"), Checks()
    (lab.folder / "lab").mkdir()
    shutil.move(lab.folder / "Snakefile", lab.folder / "lab/Snakefile")
    shutil.move(lab.folder / "rules", lab.folder / "lab/rules")
    (lab.folder / "labs.py").write_text(f"A = {lab.lab(devices=['pi5'])!r}\nB = {lab.lab(threads=[2])!r}\n")
    (lab.folder / "Snakefile").write_text(
        """
import sys
sys.path.insert(0, ".")
import labs

module A:
    snakefile: "lab/Snakefile"
    config: labs.A
    prefix: "A"
use rule * from A as A_*
module B:
    snakefile: "lab/Snakefile"
    config: labs.B
    prefix: "B"
use rule * from B as B_*
rule final:
    default_target: True
    localrule: True
    input: rules.A_all.input, rules.B_all.input
    output: "final.txt"
    shell: "cat {input} > {output}"
onsuccess:
    A.onsuccess()
    B.onsuccess()
"""
    )

    def open_now(*args: str) -> list[str]:
        return open_points(lab.run("-n", *args, executor=executor).text)

    lab.fail("xeon")
    check("two labs: rc", lab.run(executor=executor).rc, 1)
    check("two labs: open", open_now(), ["B/runs/demo/xeon-2"])
    lab.fail()
    check("mended: rc", lab.run(executor=executor).rc, 0)
    check("mended: open", open_now(), [])
    lab.record("pi5-1", "A/runs/demo").unlink()
    check("deleted in a module", open_now(), ["A/runs/demo/pi5-1"])
    assert not check.wrong, "\n".join(check.wrong)
