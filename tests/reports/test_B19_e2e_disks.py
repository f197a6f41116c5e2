"""B19, the whole stack: the controller's disk is full in mid-sweep, or read-only from the start.

Nothing that was published is lost or measured twice; the run says so once, ends with an error, and the same command
goes on when there is room.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_badluck import fill, records, remount, small_disk
from plugin.helpers_plugin import LabFolder, Snakemake, open_points
from sidewinder.config import load_files
from sidewinder.files import plan as plans

# Prints 150 kB, which is kept as raw output: a disk of 1 MiB takes a few of them.
LOUD = "print('x' * 150_000); "
COUNT = 6
MEASURE = "import sys; from sidewinder.cli import main; sys.exit(main())"


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> Iterator[LabFolder]:
    """Its run folder is on a disk of 1 MiB; Snakemake's own files and the device's are not."""
    lab = LabFolder(snakemake, tmp_path / "lab")
    script = lab.folder / "measure.py"
    script.write_text(LOUD + script.read_text())
    lab.configure(lab.lab(devices=["pi5"], threads=range(1, COUNT + 1)))
    with small_disk(lab.folder / "runs", "768k"):
        yield lab


def states(lab: LabFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lab.folder / "runs/demo/records/pi5").glob("*.json")}


def test_a_disk_that_fills_up_stops_the_sweep_and_loses_nothing(lab: LabFolder) -> None:
    first = lab.run("--logger", "sidewinder")
    assert first.rc == 1
    said = re.findall(r"^warning: .*no new work is taken.*$", first.text, re.M)
    assert len(said) == 1, first.text
    assert "No space left on device (ENOSPC)" in said[0]
    assert "free some space and run the same command again" in said[0]
    assert "Traceback" not in first.text
    assert "The same command goes on from here." in first.text
    published = states(lab)
    assert 0 < len(published) < COUNT
    assert len(lab.starts) == len(published) + 1, "one run ended with nowhere to put it, none was started after it"
    assert all(record["status"] == "ok" for record in records(lab.folder / "runs/demo").values())

    ballast = fill(lab.folder / "runs")
    full = lab.run()
    assert full.rc == 1
    assert len(lab.starts) <= len(published) + 2, "no work is taken while the disk is full"
    assert "Traceback" not in full.text
    assert states(lab) == published

    ballast.unlink()
    remount(lab.folder / "runs", "size=8m")
    assert lab.run().rc == 0
    assert sorted(lab.starts) == [f"pi5-{n}" for n in range(1, COUNT + 1)], "the run without a record was taken over"
    assert states(lab).items() >= published.items()
    assert len(states(lab)) == COUNT
    assert not list((lab.folder / "runs").rglob("*.partial"))
    assert "Nothing to be done" in lab.run().text


def test_a_read_only_run_folder_is_refused_before_anything_runs(lab: LabFolder) -> None:
    remount(lab.folder / "runs", "ro")
    refused = lab.run()
    assert refused.rc == 1
    assert lab.starts == []
    assert "nothing was started: could not write to run folder runs/demo: Read-only file system" in refused.text
    assert "make it writable or choose another output_dir" in refused.text
    assert "Traceback" not in refused.text
    listed = lab.run("-n")
    assert listed.rc == 0, "a dry run needs to write nothing"
    assert len(open_points(listed.text)) == COUNT


def test_a_run_folder_that_becomes_read_only_keeps_what_it_has(lab: LabFolder) -> None:
    assert lab.run("--config", "limit=1").rc == 0
    remount(lab.folder / "runs", "ro")
    refused = lab.run()
    assert refused.rc == 1
    assert "nothing was started" in refused.text
    assert len(lab.starts) == 1
    # Snakemake itself refuses to plan over a report that it may not replace; how it stands is told all the same
    listed = lab.run("-n")
    assert f"pi5  {COUNT} planned, 1 done, 0 failed, {COUNT - 1} never measured" in listed.text
    assert "The run folder runs/demo cannot be written" in listed.text
    assert "Traceback" not in listed.text
    remount(lab.folder / "runs", "rw,size=8m")
    assert lab.run().rc == 0
    assert len(lab.starts) == COUNT


def test_one_point_measured_by_hand_on_a_full_disk(lab: LabFolder) -> None:
    root = lab.folder / "runs/demo"
    plan = plans.publish(str(root), load_files([str(lab.folder / "config/lab.yaml")], {}))
    run_id = next(iter(plan.points))

    def measure() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", MEASURE, "measure", f"runs/demo/records/pi5/{run_id}.json"],
            cwd=lab.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(lab.folder / ".cache")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    ballast = lab.folder / "runs/ballast"
    ballast.write_bytes(bytes(700_000))  # room for the journal, not for what the point prints
    full = measure()
    assert full.returncode == 1, "it could not be written: that is no 0, and nobody stopped it"
    assert "not recorded: the controller could not write to its own disk" in full.stdout
    assert not (root / f"records/pi5/{run_id}.json").exists()
    ballast.unlink()
    assert measure().returncode == 0
    assert len(lab.starts) == 1, "its result had waited on the device"
