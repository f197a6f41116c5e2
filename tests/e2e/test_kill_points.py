"""`kill -9` of Snakemake at every kind of moment, and the same command again, until the sweep is done.

A lab is killed again and again, at another step each time, and must come out as one that nobody disturbed: a record
for every point, each point run once, one after the other, and nobody left behind. Promise 7 of docs/design.md.
"""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

import pytest

from e2e.helpers_badluck import python, records, running
from e2e.helpers_death import DEVICE, FILES, REPORT, SNAKEMAKE
from plugin.helpers_plugin import LabFolder, Snakemake, open_points

POINTS = 8
ONCE = ("open_append", "connect", "status", "run_jobs", *REPORT)  # in one invocation
TESTS = Path(__file__).resolve().parents[1]
ARM = f"import sys\nsys.path.insert(0, {str(TESTS)!r})\nfrom e2e.helpers_death import arm\narm()\n"
# what is measured: appends when it starts and when it ends, by a clock that all processes share
WORK = """\
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def say(what):
    os.write(log, ("%d %s %s\\n" % (time.monotonic_ns(), what, sys.argv[2])).encode())
say("start")
time.sleep(0.03)
say("end")
print("value=" + sys.argv[2])
"""


class Mortal:
    """A lab of quick points whose controller dies on demand."""

    def __init__(self, snakemake: Snakemake, folder: Path) -> None:
        self.lab = LabFolder(snakemake, folder)
        snakefile = folder / "Snakefile"
        snakefile.write_text(ARM + snakefile.read_text())
        self.log = folder / "log"
        block = python(WORK, str(self.log), "{threads}", threads=list(range(1, POINTS + 1)))
        self.lab.configure(
            {
                "experiment": "demo",
                "devices": {"here": {"kind": "local"}},
                "defaults": {"devices": ["here"]},
                "matrix": [block],
            }
        )
        self.killed: list[str] = []

    def run(self, moment: str = "") -> bool:
        """True: it ended by itself, and well."""
        ended = self.lab.run(env={"DIE_AT": moment})
        if ended.rc == -signal.SIGKILL:
            self.killed.append(moment)
            return False
        assert ended.rc == 0, f"after {self.killed}, then {moment}:\n{ended.text}"
        return True

    def check(self) -> None:
        story = f"killed at {self.killed}"
        found = records(self.lab.folder / "runs/demo")
        assert len(found) == POINTS, story
        assert {record["status"] for record in found.values()} == {"ok"}, story
        assert sorted(record["metrics"]["value"] for record in found.values()) == list(range(1, POINTS + 1)), story
        events = sorted(tuple(line.split()) for line in self.log.read_text().splitlines())
        told = [(what, name) for _, what, name in events]
        for name in map(str, range(1, POINTS + 1)):
            assert told.count(("end", name)) == 1, f"point {name} was run {told.count(('end', name))} times; {story}"
        assert [what for what, _ in told] == ["start", "end"] * POINTS, f"two at once on one device; {story}: {told}"
        assert [a == b for (_, a), (_, b) in zip(told[::2], told[1::2], strict=True)] == [True] * POINTS, story
        assert running(str(self.log)) == [], story
        assert not list((self.lab.folder / "runs").rglob("*.partial")), story
        superseded = self.lab.folder / "runs/demo/superseded"
        assert not superseded.exists(), f"an ok record was replaced; {story}"
        assert open_points(self.lab.run("-n").text) == [], story

    def taken_over(self) -> int:
        found = records(self.lab.folder / "runs/demo").values()
        return sum("taken over" in warning for record in found for warning in record["warnings"])


@pytest.mark.parametrize(
    "steps", [FILES, DEVICE, (*SNAKEMAKE, *REPORT)], ids=["files", "device", "snakemake-and-report"]
)
def test_killed_at_every_kind_of_moment_a_sweep_comes_out_undisturbed(
    snakemake: Snakemake, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    seed = int(os.environ.get("KILL_SEED", "20261"))  # another schedule: KILL_SEED=7 pytest ...
    rng = random.Random(f"{seed} {steps}")
    print(f"seed {seed}")
    moments = []
    for step in steps:
        occurrence = 1 if step in ONCE else rng.randint(1, 3)
        # a record that Snakemake has not heard of is the moment at which it asks for a second measurement
        when = "before" if step in ("on_done", "finished") else rng.choice(["before", "after"])
        moments.append(f"{step}:{occurrence}:{when}")
    rng.shuffle(moments)
    moments.sort(key=lambda moment: moment.startswith(REPORT))  # it is made last
    if "status" in steps:  # asked only by a controller that finds an attempt of a dead one: one that has just died
        moments.sort(key=lambda moment: not moment.startswith("status"))
        moments.insert(0, "start:1:after")
    count, taken_over, fresh = 0, 0, True
    mortal = Mortal(snakemake, tmp_path / f"lab{count}")
    while moments:
        if not mortal.run(moments[0]):
            moments.pop(0)
            fresh = False
            continue
        assert not fresh, f"{moments[0]} never came by"
        mortal.check()
        taken_over += mortal.taken_over()
        count += 1
        mortal, fresh = Mortal(snakemake, tmp_path / f"lab{count}"), True
    assert mortal.run()
    mortal.check()
    if steps is DEVICE:
        assert taken_over + mortal.taken_over() > 0, "no run outlived its controller: this test has lost its point"
    assert re.fullmatch(r"[\w:]+", mortal.killed[-1])
