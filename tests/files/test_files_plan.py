"""The plan on disk: nothing lost, nothing rewritten, one campaign."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from files.helpers_files import UNSYNCED, plan_of, point
from sidewinder.errors import ConfigError
from sidewinder.files import atomic, plan
from sidewinder.model import Device, Lab, Model, Plan, Policy, RetryPolicy

FULL = Plan(
    Lab(
        "exp",
        "runs/exp",
        {
            "pi5": Device(
                "pi5", "ssh", failover_to=("pi6",), secrets=("TOKEN",), env={"A": "1"}, settings={"host": "pi5.lan"}
            ),
            "pi6": Device("pi6", "ssh", give_up_after_s=360.0),
        },
        {"m": Model("m", paths={"pi5": "/data/m"}, sha256="f" * 64, tags=("big",))},
        Policy(RetryPolicy(max_attempts=5), order_seed=7, allow_holes=True, points_per_job=50),
        {"b": "known bug"},
    ),
    {
        "a": point(
            "a",
            command=("sysbench", "--threads={threads}"),
            metrics={"x": "(.*)"},
            threads=0,
            tags=("t",),
            parameters={"lr": 0.1},
            prepare={"settle_s": 5},
            flash_attention=False,
        ),
        "b": point(
            "b", "pi6", priority=3, failover_from="pi5", sample_power=True, model="m", model_path="/dätä/\udcff"
        ),
        "c": replace(point("c"), experiment="another"),
    },
    warnings=("2 duplicates left out",),
)


def test_write_read_compare(tmp_path: Path) -> None:
    written = plan.publish(str(tmp_path), FULL, ops=UNSYNCED)
    read = plan.read(str(tmp_path))
    assert read == written
    assert read == replace(FULL, campaign=written.campaign)
    assert list(read.points) == ["a", "b", "c"]
    assert type(read.points["a"].command) is tuple


def test_what_equals_a_default_is_not_written(tmp_path: Path) -> None:
    plan.publish(str(tmp_path), plan_of(point("a", parameters={}, extra={})), ops=UNSYNCED)
    line = next(line for line in (tmp_path / "plan.json").read_text().splitlines() if line.startswith('"a"'))
    assert line == '"a":{"device":"pi5","backend":"command","mode":"command"}'


def test_unchanged_content_is_not_written_again(tmp_path: Path) -> None:
    first = plan.publish(str(tmp_path), FULL)
    os.utime(tmp_path / "plan.json", (1, 1))
    again = plan.publish(str(tmp_path), replace(FULL, selected=frozenset("a")))
    assert (tmp_path / "plan.json").stat().st_mtime == 1
    assert again.campaign == first.campaign
    assert again.selected == frozenset("a")  # this invocation's, not the folder's
    assert plan.read(str(tmp_path)).selected is None


def test_the_campaign_stays_when_the_plan_changes_or_is_torn(tmp_path: Path) -> None:
    first = plan.publish(str(tmp_path), replace(FULL, campaign=""))
    assert len(first.campaign) == 36
    changed = plan.publish(str(tmp_path), replace(plan_of(point("z")), campaign=""))
    assert changed.campaign == first.campaign
    (tmp_path / "plan.json").write_bytes((tmp_path / "plan.json").read_bytes()[:90])
    with pytest.raises(ConfigError, match=r"plan\.json.*cannot be read"):
        plan.read(str(tmp_path))
    assert plan.publish(str(tmp_path), replace(FULL, campaign="")).campaign == first.campaign
    assert plan.publish(str(tmp_path / "other"), replace(FULL, campaign="")).campaign != first.campaign


def test_two_first_starts_at_once_agree_on_a_campaign(tmp_path: Path) -> None:
    both_looked = threading.Barrier(2)

    class Meeting(atomic.FileOps):
        met = False

        def create(self, path: str) -> int:
            if not self.met:
                self.met = True
                both_looked.wait(20)  # now both have seen that there is no plan
            return super().create(path)

    made: list[str] = []

    def start(run_id: str) -> None:
        mine = replace(plan_of(point(run_id)), campaign="")
        made.append(plan.publish(str(tmp_path), mine, ops=Meeting()).campaign)

    threads = [threading.Thread(target=start, args=(run_id,)) for run_id in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(made) == 2
    assert set(made) == {plan.read(str(tmp_path)).campaign}


def test_what_a_later_version_added_is_passed_over(tmp_path: Path) -> None:
    plan.publish(str(tmp_path), FULL, ops=UNSYNCED)
    path = tmp_path / "plan.json"
    path.write_text(
        path.read_text(errors="surrogatepass")
        .replace('"a":{', '"a":{"of_tomorrow":1,')
        .replace('"pi5":{"kind"', '"pi5":{"of_tomorrow":1,"kind"'),
        errors="surrogatepass",
    )
    assert plan.read(str(tmp_path)).points["a"] == FULL.points["a"]


def test_no_plan_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no plan in") as caught:
        plan.read(str(tmp_path))
    assert "start the sweep once" in str(caught.value)
    (tmp_path / "plan.json").write_text('{"plan_version": 99}')
    with pytest.raises(ConfigError, match="of another Sidewinder"):
        plan.read(str(tmp_path))


def test_equal_values_are_kept_once(tmp_path: Path) -> None:
    points = [point(f"p{i}", model_path="/data/m", prepare={"settle_s": 5}, command=("x", "y")) for i in range(3)]
    plan.publish(str(tmp_path), plan_of(*points), ops=UNSYNCED)
    first, *others = plan.read(str(tmp_path)).points.values()
    for other in others:
        assert other.prepare is first.prepare
        assert other.command is first.command
        assert other.model_path is first.model_path
