"""Parts of the executor plugin by themselves: points of jobs, what is forced, events, settings, import cost."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from sidewinder.files.layout import RunFolder
from sidewinder.model import Device, FailureClass, Lab, Plan, Point
from snakemake_executor_plugin_sidewinder import ExecutorSettings, common_settings
from snakemake_executor_plugin_sidewinder.events import emit
from snakemake_executor_plugin_sidewinder.foreign import ForeignJobs
from snakemake_executor_plugin_sidewinder.points import Forced, Points


def sweep(root: str, *points: tuple[str, str]) -> Any:
    lab = Lab("demo", root, {device: Device(device, "local") for device, _ in points})
    plan = Plan(lab, {run_id: Point(run_id, "demo", device, "noop", "run") for device, run_id in points})
    return SimpleNamespace(plan=plan, folder=RunFolder(root), has_shard=lambda device, shard: False)


def job(*output: str, group: bool = False, rule: str = "measure") -> Any:
    return SimpleNamespace(output=output, is_group=lambda: group, rule=SimpleNamespace(name=rule))


def test_a_point_is_found_by_its_record_alone() -> None:
    points = Points({"x": sweep("runs/a", ("rig-07.lab", "p-1")), "y": sweep("B/runs/a", ("rig-07.lab", "p-1"))})
    found = points.of(job("B/runs/a/records/rig-07.lab/p-1.json"))
    assert found is not None
    assert (found.root, found.device, found.run_ids) == ("B/runs/a", "rig-07.lab", ("p-1",))
    assert points.of(job("./runs/a/records/rig-07.lab/p-1.json")) is not None, "spelt otherwise, the same file"


@pytest.mark.parametrize(
    "one",
    [
        job("runs/a/records/rig-07.lab/p-2.json"),
        job("runs/a/records/rig-07xlab/p-1.json"),
        job("runs/a/records/rig-07.lab/p-1.json", "other.txt"),
        job("runs/a/records/rig-07.lab/p-1.json", group=True),
        job("runs/ab/records/rig-07.lab/p-1.json"),
        job("runs/a/summary/report.html"),
    ],
    ids=["not planned", "another device", "two outputs", "group", "another folder", "no record"],
)
def test_everything_else_is_no_point(one: Any) -> None:
    assert Points({"x": sweep("runs/a", ("rig-07.lab", "p-1"))}).of(one) is None


def test_forced_is_what_the_person_said_and_not_what_a_crash_left() -> None:
    def settings(**said: Any) -> Any:
        return SimpleNamespace(
            **{"forceall": False, "forcerun": set(), "forcetargets": False, "targets": set(), **said}
        )

    assert job("a.json") not in Forced(settings(targets={"a.json"}))
    assert job("a.json") in Forced(settings(targets={"a.json"}, forcetargets=True))
    assert job("a.json") in Forced(settings(forceall=True))
    assert job("a.json") in Forced(settings(forcerun={"measure"}))
    assert job("a.json") in Forced(settings(forcerun={"./a.json"}))
    assert job("b.json") not in Forced(settings(forcerun={"a.json"}))


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def told(**event: Any) -> logging.LogRecord:
    logger, kept = logging.Logger("test"), Kept()
    logger.addHandler(kept)
    emit(logger, event, 7)
    (record,) = kept.records
    return record


def test_ordinary_progress_prints_nothing_but_carries_everything() -> None:
    record = told(kind="started", device="pi5", run_id="p-1", label="t1", at_utc="2026-01-01T00:00:00+00:00")
    assert record.msg is None
    assert record.levelno == logging.INFO
    fields = vars(record)
    assert (fields["event"], fields["v"], fields["kind"]) == ("sidewinder", 1, "started")
    assert (fields["device"], fields["run_id"], fields["jobid"]) == ("pi5", "p-1", 7)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (
            {"kind": "finished", "outcome": "failed", "failure": {"class": "measurement", "message": "no luck"}},
            "no luck",
        ),
        (
            {"kind": "finished", "outcome": "hole", "failure": {"class": "not_attempted", "message": "gone"}},
            "not measured",
        ),
        ({"kind": "retry", "attempt": 1, "error": "cut", "delay_s": 5.0}, "again in 5 s"),
        ({"kind": "down", "reason": "3 failures"}, "down: 3 failures"),
        ({"kind": "warning", "message": "the clock is off"}, "the clock is off"),
    ],
    ids=["failed", "hole", "retry", "down", "warning"],
)
def test_what_a_person_must_see_is_a_warning_with_its_sentence(event: dict[str, Any], words: str) -> None:
    record = told(device="pi5", **event)
    assert record.levelno == logging.WARNING
    assert words in record.getMessage()
    assert "pi5" in record.getMessage()


def test_environment_values_stay_off_command_lines() -> None:
    assert common_settings.pass_envvar_declarations_to_cmd is False


def test_settings_refuse_what_would_hang() -> None:
    with pytest.raises(WorkflowError, match="1 to 600"):
        ExecutorSettings(stop_timeout=0)


def test_a_foreign_job_tells_its_end_and_stops_with_its_children(tmp_path: Any) -> None:
    jobs = ForeignJobs()
    assert jobs.run("true", str(tmp_path / "a/log")) is None
    failure = jobs.run("echo why >&2; exit 3", str(tmp_path / "b/log"))
    assert failure is not None
    assert "exit code 3" in failure.message
    assert "why" in failure.message
    jobs.stop()
    refused = jobs.run("touch x", str(tmp_path / "c/log"))
    assert refused is not None
    assert refused.failure_class is FailureClass.CANCELLED


def test_plugins_import_nothing_heavy() -> None:
    """Snakemake imports every plugin at each start (goal: < 30 ms): no engine, no pydantic, no pandas."""
    code = (
        "import sys, snakemake_interface_executor_plugins.executors.real, snakemake_interface_scheduler_plugins.base\n"
        "before = set(sys.modules)\n"
        "import snakemake_executor_plugin_sidewinder, snakemake_scheduler_plugin_sidewinder\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    new = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = {"snakemake_executor_plugin_sidewinder", "snakemake_scheduler_plugin_sidewinder"}
    foreign = {name.partition(".")[0] for name in new} - ours - set(sys.stdlib_module_names)
    assert foreign <= {"snakemake_interface_executor_plugins", "snakemake_interface_scheduler_plugins"}
