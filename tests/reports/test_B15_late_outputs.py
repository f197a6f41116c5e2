"""B15: an output that is there is missed by a cached view of its folder, and a finished job is called failed.

Whoever looks for outputs on this machine lists their folder anew and looks again for as long as ``--latency-wait``
allows; when they never show it says what was expected, what the folder holds and how long it waited. What comes from
another machine is written here by ourselves: nothing can be late there.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.helpers_badluck import until
from engine.helpers_engine import Told, make_plan, noops
from plugin.helpers_plugin import LabFolder, Snakemake
from sidewinder.engine import Engine, RuleFiles, appearing, shell_task
from sidewinder.engine.appearing import Missing, View, appear
from sidewinder.model import Device


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


class NetworkFolder(View):
    """Names in a folder, each visible from a time on: by itself, or only after the folder was listed then."""

    def __init__(self, clock: Clock, visible_at_s: dict[str, float], *, wakes_by_listing: bool = False) -> None:
        self._clock, self._visible_at_s, self._wakes = clock, visible_at_s, wakes_by_listing
        self._awake = not wakes_by_listing
        self.listed: list[str] = []

    def names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        self._awake = True
        return sorted(os.path.basename(path) for path in self._visible_at_s if self.exists(path))

    def exists(self, path: str) -> bool:
        if self._wakes:
            return self._awake and path in self._visible_at_s
        return self._clock.now_s >= self._visible_at_s.get(path, float("inf"))


def look(clock: Clock, view: NetworkFolder, *paths: str, allowance_s: float) -> Missing | None:
    return asyncio.run(appear("/w", paths, allowance_s, view=view, now_s=clock, sleep=clock.sleep))


def test_listing_the_folder_wakes_its_view_up_without_a_wait() -> None:
    clock = Clock()
    view = NetworkFolder(clock, {"/w/out/a.txt": 0.0}, wakes_by_listing=True)
    assert look(clock, view, "out/a.txt", allowance_s=0.0) is None
    assert view.listed == ["/w/out"]
    assert clock.slept == []


def test_an_output_that_shows_after_8_s_passes_within_an_allowance_of_30() -> None:
    clock = Clock()
    view = NetworkFolder(clock, {"/w/out/a.txt": 1008.0, "/w/b.txt": 0.0})
    assert look(clock, view, "out/a.txt", "b.txt", allowance_s=30.0) is None
    assert 8.0 <= clock.now_s - 1000.0 <= 9.0, "soon after it is there"
    assert set(view.listed) == {"/w/out"}, "only where something lacks"
    assert max(clock.slept) <= 1.0


def test_one_that_never_shows_is_told_with_what_is_there_and_how_long_we_waited() -> None:
    clock = Clock()
    names = {f"/w/out/n{i:02}": 0.0 for i in range(25)}
    missing = look(clock, NetworkFolder(clock, names), "out/a.txt", "top.txt", "out/n03", allowance_s=30.0)
    assert missing is not None
    assert missing.paths == ("out/a.txt", "top.txt")
    assert 30.0 <= missing.waited_s <= 31.0
    told = str(missing)
    assert told.startswith("out/a.txt, top.txt. Waited 30 s")
    assert "--latency-wait is 30" in told
    assert "out holds n00, n01," in told
    assert "n19 and 5 more" in told
    assert "the working directory" in told


def test_without_an_allowance_nobody_waits() -> None:
    clock = Clock()
    missing = look(clock, NetworkFolder(clock, {"/w/a.txt": 1000.5}), "a.txt", allowance_s=0.0)
    assert missing is not None
    assert clock.slept == []


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    missing = asyncio.run(appear(str(tmp_path), ["nowhere/a.txt"], 0.0))
    assert missing is not None
    assert "nowhere cannot be listed (No such file or directory)" in str(missing)


# -- each route to it


class Hidden(View):
    """Hides one name until its folder was listed so often."""

    def __init__(self, name: str, listings: int) -> None:
        self._name, self._left = name, listings

    def names(self, folder: str) -> list[str]:
        self._left -= 1
        return [name for name in super().names(folder) if name != self._name or self._left < 0]

    def exists(self, path: str) -> bool:
        return super().exists(path) and (self._left < 0 or not path.endswith(self._name))


@pytest.mark.parametrize(("listings", "outcome"), [(3, "ok"), (1_000_000, "failed")])
def test_a_rule_on_local_waits_in_the_engine(
    listings: int, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = Hidden("late.txt", listings)
    monkeypatch.setattr(appearing, "View", lambda: view)
    device = Device("local", "local", settings={"state_dir": str(tmp_path / "agent")})
    plan = make_plan(tmp_path / "runs", noops(1), devices=[device])
    told, work = Told(), tmp_path / "work"
    work.mkdir()
    engine = Engine(told)
    engine.add_lab(str(tmp_path / "runs"), plan)
    files = RuleFiles(str(work), outputs=("soon.txt", "late.txt"), latency_wait_s=30.0 if outcome == "ok" else 0.5)
    engine.submit_rule(
        "rule", "local", str(tmp_path / "runs"), shell_task("touch soon.txt late.txt", cwd=str(work)), files
    )
    told.wait(1)
    assert engine.shutdown(20)
    assert told.done == {"rule": outcome}
    if outcome == "failed":
        message = told.failures["rule"].message
        assert message.startswith("the command ended well but did not write late.txt. Waited ")
        assert "--latency-wait is 0.5" in message
        assert "the working directory holds" in message
        assert "soon.txt" in message


RULES = """
import json

module lab:
    snakefile: "lab/Snakefile"
    config: json.load(open("lab.json"))
use rule * from lab as lab_*

rule never:
    output: "never.txt"
    resources: device="pi5"
    shell: "touch something.txt"

rule ordinary:
    output: "ordinary.txt"
    shell: "true"
"""


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture
def lab(snakemake: Snakemake, tmp_path: Path) -> LabFolder:
    import json
    import shutil

    one = LabFolder(snakemake, tmp_path / "w")
    (one.folder / "lab").mkdir()
    shutil.move(one.folder / "Snakefile", one.folder / "lab/Snakefile")
    shutil.move(one.folder / "rules", one.folder / "lab/rules")
    (one.folder / "lab.json").write_text(json.dumps(one.lab(devices=["pi5"])))
    (one.folder / "Snakefile").write_text(RULES)
    return one


def test_the_allowance_of_a_rule_is_what_snakemake_was_given(lab: LabFolder) -> None:
    run = lab.run("never.txt", "--latency-wait", "1")
    assert run.rc == 1
    waited_s = re.findall(
        r"message: .*did not write never\.txt\. Waited ([\d.]+) s .*\(--latency-wait is 1\); the working",
        run.text,
    )
    assert len(waited_s) == 1, run.text
    assert float(waited_s[0]) >= 1.0
    assert "something.txt" in run.text


def test_an_ordinary_job_has_the_allowance_too(lab: LabFolder) -> None:
    """The job's own Snakemake process waits; its output is written when it says that it does."""
    started = lab.start("ordinary.txt", "--latency-wait", "40")

    def waits() -> bool:
        logs = lab.folder.glob(".snakemake/sidewinder_logs/**/*.log")
        return any("Waiting at most 40 seconds for missing files" in log.read_text() for log in logs)

    until(waits, "the job looks for its output")
    (lab.folder / "ordinary.txt").write_text("late")
    run = started.wait()
    assert run.rc == 0, run.text
