"""A machine that is too small: no memory, no room on the device's disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from e2e.helpers_badluck import by_tag, fill, memory_group, python, running, small_disk
from plugin.helpers_plugin import LabFolder, Snakemake
from sidewinder.config import load_files
from sidewinder.files import plan as plans

MEASURE = "import sys; from sidewinder.cli import main; sys.exit(main())"


def measure(lab: LabFolder, run_id: str, group: Path) -> subprocess.CompletedProcess[str]:
    """`sidewinder measure` as a whole inside the control group."""
    record = f"runs/demo/records/here/{run_id}.json"
    join = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
    return subprocess.run(
        ["sh", "-c", join, "sh", str(group), sys.executable, "-c", MEASURE, "measure", record, "--strict"],
        cwd=lab.folder,
        env={**os.environ, "XDG_CACHE_HOME": str(lab.folder / ".cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_out_of_memory_is_a_result_with_its_limit_and_is_not_tried_again(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    hog = "import os; open(os.environ['STARTS'], 'a').write('x'); x = bytearray(600 << 20); print('value=1')"
    env = {"env": {"STARTS": str(tmp_path / "starts")}}
    blocks = [python(hog, extra=env, tags=["hog"]), python("print('value=2')", tags=["modest"])]
    config = lab.lab(devices=["here"])
    lab.configure({**config, "defaults": {"devices": ["here"]}, "matrix": blocks})
    root = lab.folder / "runs/demo"
    plan = plans.publish(str(root), load_files([str(lab.folder / "config/lab.yaml")], {}))
    hog_id, modest_id = plan.points
    with memory_group(300 << 20) as group:
        killed, fits = measure(lab, hog_id, group), measure(lab, modest_id, group)
    found = by_tag(root)
    assert found["hog"]["failure"]["class"] == "memory", found["hog"]["error"]
    assert "1 OOM kill counted in its control group, whose limit is 300 MiB" in found["hog"]["error"]
    assert "a smaller model, context or batch" in found["hog"]["error"]
    assert found["hog"]["error"] in killed.stdout
    assert killed.returncode == 3, killed.stderr
    assert (tmp_path / "starts").read_text() == "x"
    assert (fits.returncode, found["modest"]["status"]) == (0, "ok")
    assert found["modest"]["conditions"]["cgroup"]["oom_kills"] == 0, "an earlier kill is not this run's"


def test_a_full_disk_of_the_device_takes_it_out_and_the_others_go_on(snakemake: Snakemake, tmp_path: Path) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    config = lab.lab()
    with small_disk(tmp_path / "small", "64m") as disk:  # a probe wants 32 MiB free
        # where an agent keeps its runs is a matter of the account; here both devices are one account
        interpreter = tmp_path / "python-of-pi5"
        interpreter.write_text(f'#!/bin/sh\nexport XDG_CACHE_HOME="{disk}"\nexec "{sys.executable}" "$@"\n')
        interpreter.chmod(0o755)
        config["devices"]["pi5"]["python"] = str(interpreter)
        lab.configure(config)
        ballast = fill(disk)
        full = lab.run("--logger", "sidewinder")
        assert full.rc == 1
        assert sorted(lab.starts) == ["xeon-1", "xeon-2"]
        assert full.text.count("DOWN pi5: ") == 1, full.text
        for record in (lab.record("pi5-1"), lab.record("pi5-2")):
            text = record.read_text()
            assert '"class":"not_attempted"' in text
            assert '"cause":"device"' in text
            assert "its disk is full" in text
            assert "~/.cache/sidewinder" in text
            assert "0:pi5" not in text, "an inner name of the engine"
        assert "HOLE pi5" in full.text
        assert "2 of 4 points are open" in full.text
        ballast.unlink()
        freed = lab.run()
    assert freed.rc == 0, freed.text
    assert sorted(lab.starts) == ["pi5-1", "pi5-2", "xeon-1", "xeon-2"]
    assert running(str(lab.folder / "measure.py")) == []
