"""Promise 7: ``kill -9`` of the controller at any moment, then the same command again: same records as an undisturbed
run, nothing measured twice that had finished, nothing left running on a device that contaminates the next point.

Shown with real controllers, killed at moments drawn from a printed seed.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
from pathlib import Path

from engine.helpers_engine import make_plan, run
from promises.helpers_promises import PATIENCE_S, Diary, Property, campaigns, here, records, until
from sidewinder.model import Plan

CONTROLLER = Path(__file__).parents[1] / "engine" / "controller_script.py"
NAMES = "abcd"


def lab(folder: Path) -> tuple[Diary, Plan, Path]:
    folder.mkdir()
    diary, root = Diary(folder), folder / "runs"
    return diary, make_plan(root, [diary.point(name, sleep_s=0.05) for name in NAMES], devices=[here(folder)]), root


def killed_when(controller: subprocess.Popen[bytes], watched: Path, goal_bytes: int) -> None:
    until(lambda: size_of(watched) >= goal_bytes or controller.poll() is not None, "the moment to die")
    controller.send_signal(signal.SIGKILL)


def told_by(root: Path) -> list[tuple[str, str, int]]:
    """What the records say of each point, as far as two runs of it can say the same."""
    return sorted((r["identity"]["parameters"]["name"], r["status"], r["metrics"]["n"]) for r in records(root).values())


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_killed_again_and_again_it_has_the_records_of_an_undisturbed_run(
    tmp_path: Path, record_property: Property
) -> None:
    seed = int(os.environ.get("SEED") or secrets.randbelow(2**32))
    record_property("seeds", f"SEED={seed}")
    rng = random.Random(seed)
    _, plan, calm_root = lab(tmp_path / "calm")
    assert set(run(calm_root, plan).done.values()) == {"ok"}
    diary, plan, root = lab(tmp_path / "killed")
    for _ in range(4):
        watched = rng.choice([root / "journal.jsonl", diary.path])
        goal = size_of(watched) + rng.randint(1, 200 if watched.suffix else 6)
        with subprocess.Popen([sys.executable, str(CONTROLLER), str(root)], stdout=subprocess.DEVNULL) as controller:
            killed_when(controller, watched, goal)
    done = subprocess.run(
        [sys.executable, str(CONTROLLER), str(root)], capture_output=True, check=True, timeout=PATIENCE_S * 2
    )
    assert set(json.loads(done.stdout).values()) == {"ok"}
    assert diary.began() == dict.fromkeys(NAMES, 1), f"SEED={seed}: {diary.words}"
    assert diary.most_at_once() == 1, f"SEED={seed}: {diary.words}"
    assert told_by(root) == told_by(calm_root)
    assert len(diary.words) == 2 * len(NAMES), "nothing of it runs any more"


def test_in_campaigns_with_torn_journals(record_property: Property) -> None:
    campaigns(record_property, "controller killed", "whole lines")
