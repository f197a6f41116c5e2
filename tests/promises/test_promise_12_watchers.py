"""Promise 12: nothing that watches (metrics, progress, report) is in the write path; killing it costs a graph, not a
measurement.

Shown with a display that raises at every event, a terminal that goes away in the middle of a real sweep, and a report
that cannot be written.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import Told, make_plan, run
from plugin.helpers_plugin import COMMON, OURS, LabFolder
from promises.helpers_promises import PATIENCE_S, Diary, here, records
from sidewinder import report
from sidewinder.errors import PublishError


class Broken(Told):
    def on_event(self, event: dict[str, Any]) -> None:
        raise RuntimeError("this display has seen enough")


def test_a_display_that_raises_costs_no_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    plan = make_plan(root, [diary.point(name) for name in "abc"], devices=[here(tmp_path)])
    told = run(root, plan, told=Broken())
    assert set(told.done.values()) == {"ok"}
    assert {record["status"] for record in records(root).values()} == {"ok"}
    assert len(records(root)) == 3
    assert caplog.text.count("this display has seen enough") == 1, "said once"


def test_a_terminal_that_goes_away_costs_no_record(tmp_path: Path) -> None:
    lab = LabFolder(None, tmp_path / "lab")  # type: ignore[arg-type] -- its own Snakemake is not used
    (lab.folder / "HOLD").touch()
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(lab.folder / ".cache"),
    }
    argv = [sys.executable, "-m", "snakemake", *OURS, *COMMON, "--logger", "sidewinder"]
    with subprocess.Popen(
        argv, cwd=lab.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as snakemake:
        assert snakemake.stdout is not None
        assert snakemake.stdout.readline(), "it says something"
        snakemake.stdout.close()  # whoever watched is gone
        (lab.folder / "HOLD").unlink()
        try:
            snakemake.wait(timeout=PATIENCE_S * 3)
        finally:
            snakemake.kill()
    written = records(lab.folder / "runs" / "demo")
    assert len(written) == 4
    assert {record["status"] for record in written.values()} == {"ok"}
    assert sorted(lab.starts) == ["pi5-1", "pi5-2", "xeon-1", "xeon-2"], "each ran once"


def test_a_report_that_cannot_be_written_costs_the_report(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    plan = make_plan(root, [diary.point(name) for name in "ab"], devices=[here(tmp_path)])
    (root / "summary").write_text("a file where the folder should be")
    assert set(run(root, plan).done.values()) == {"ok"}
    before = records(root)
    with pytest.raises(PublishError):
        report.build(str(root), plan)
    assert records(root) == before
    (root / "summary").unlink()
    report.build(str(root), plan)
    assert (root / "summary" / "report.html").exists()
    assert diary.began() == {"a": 1, "b": 1}, "nothing had to be measured again for it"
