"""B12: clocks that disagree delete nothing and repeat nothing; a file from the future does no harm."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plugin.helpers_plugin import LabFolder, Snakemake, open_points


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


def test_records_from_the_future_are_kept_aggregated_and_not_repeated(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"], threads=[1, 2]))
    lab.fail("pi5-2")
    assert lab.run().rc == 1
    good, bad = lab.record("pi5-1"), lab.record("pi5-2")
    kept = good.read_bytes()
    ahead = time.time() + 20 * 60
    for path in (good, bad, bad.with_name(bad.name + ".open")):
        if path.exists():
            os.utime(path, (ahead, ahead))
    assert open_points(lab.run("-n").text) == ["pi5-2"]
    lab.fail()
    again = lab.run()
    assert again.rc == 0, again.text
    assert "clock" not in again.text.lower()
    assert good.read_bytes() == kept
    assert lab.starts.count("pi5-1") == 1
    assert "Nothing to be done" in lab.run().text
