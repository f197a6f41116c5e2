"""B35, the run's part: whatever bytes a measured program prints come home as they are, and disturb nobody else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import command, make_plan, record, run
from sidewinder.model import Device

NOISE = b"\xc2\x20 \xff\xfe banner \x92 nul \x00 escape \x1b[1m bell \x07 lone \xed\xa0\x80 half \xc3"
# half a character by one write, the other half by the next
SPLIT = b"caf\xc3\xa9\n"
CODE = """\
import os, sys
noise, split = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
os.write(2, noise)
os.write(1, noise + b"\\n" + split[:4])
os.write(1, split[4:] + b"value=7\\n")
"""


@pytest.fixture(scope="module", params=["C", "C.UTF-8"])
def swept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("bytes")
    local = Device("local", "local", settings={"state_dir": str(folder / "agent")}, env={"LC_ALL": request.param})
    noisy = command(
        sys.executable, "-S", "-E", "-c", CODE, NOISE.hex(), SPLIT.hex(), metrics={"value": r"^value=(\d+)"}
    )
    # a file name that is no text, handed over by the program itself
    odd = os.fsdecode(b"odd-\xff-name")
    named = command(
        sys.executable,
        "-S",
        "-E",
        "-c",
        "import os, sys; os.write(1, os.listdir(sys.argv[1].encode())[0] + b'\\nvalue=8\\n')",
        str(folder / "names"),
        metrics={"value": r"^value=(\d+)"},
    )
    quiet = command(sys.executable, "-S", "-E", "-c", "print('value=9')", metrics={"value": r"^value=(\d+)"})
    (folder / "names").mkdir()
    (folder / "names" / odd).touch()
    root = folder / "runs"
    plan = make_plan(root, [noisy, named, quiet], devices=[local])
    run(root, plan)
    return root, [record(root, plan, run_id) for run_id in plan.points]


def test_all_are_measured(swept: tuple[Path, list[Any]]) -> None:
    assert [(one["status"], one["metrics"]["value"]) for one in swept[1]] == [("ok", 7), ("ok", 8), ("ok", 9)]


def test_the_bytes_are_kept_as_they_are(swept: tuple[Path, list[Any]]) -> None:
    root, (noisy, named, _) = swept
    kept = {path.name: path.read_bytes() for path in (root / noisy["raw"]["dir"]).iterdir()}
    assert kept == {"1.stdout": NOISE + b"\n" + SPLIT + b"value=7\n", "1.stderr": NOISE}
    assert noisy["raw"]["stdout_bytes"] == len(kept["1.stdout"])
    assert (root / named["raw"]["dir"] / "1.stdout").read_bytes() == b"odd-\xff-name\nvalue=8\n"


def test_what_is_shown_of_them_is_text(swept: tuple[Path, list[Any]]) -> None:
    shown = swept[1][0]["raw"]["stdout"]
    assert "\ufffd" in shown
    assert "café" in shown
    shown.encode("utf-8")  # no lone surrogate
