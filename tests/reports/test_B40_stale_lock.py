"""B40: after a crash the same command just works; while another controller lives it is refused by name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.test_interrupted import until
from plugin.helpers_plugin import LabFolder, Snakemake


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


def test_a_live_controller_is_named_and_its_plan_stands(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    lab.configure(lab.lab(devices=["pi5"]))
    (lab.folder / "HOLD").touch()
    first = lab.start()
    until(lambda: bool(lab.starts), first)
    plan = (lab.folder / "runs/demo/plan.json").read_bytes()

    lab.configure(lab.lab(devices=["pi5"], threads=[1, 2, 3]))
    second = lab.run()
    assert second.rc == 1
    assert f"pid {first.pid}" in second.text or f"kill {first.pid}" in second.text
    assert "Traceback" not in second.text
    assert (lab.folder / "runs/demo/plan.json").read_bytes() == plan, "the plan of the live one was not replaced"
    assert lab.run("-n").rc == 0, "looking is allowed"

    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    (lab.folder / "HOLD").unlink()
    again = lab.run()
    assert again.rc == 0, again.text
    assert sorted(set(lab.starts)) == ["pi5-1", "pi5-2", "pi5-3"]
