"""The scheduler plugin: Snakemake's test base, and what it promises beyond."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from snakemake_interface_scheduler_plugins.tests import TestSchedulerBase

from snakemake_scheduler_plugin_sidewinder import Scheduler, SchedulerSettings


class TestScheduler(TestSchedulerBase):  # type: ignore[misc]
    __test__ = True

    def get_scheduler_cls(self) -> type[Scheduler]:
        return Scheduler

    def get_scheduler_settings(self) -> SchedulerSettings:
        return SchedulerSettings()


def select(jobs: list[Any], free: dict[str, int | str]) -> list[str]:
    scheduler = Scheduler(None, SchedulerSettings(), None)
    return [job.name for job in scheduler.select_jobs(jobs, jobs, free, {})]


def job(name: str, priority: int = 0, **resources: Any) -> Any:
    return SimpleNamespace(name=name, priority=priority, scheduler_resources=resources)


def test_the_highest_priority_comes_first_and_takes_what_is_free() -> None:
    jobs = [job("low", 1, mem_mb=60), job("high", 9, mem_mb=60), job("small", 0, mem_mb=40)]
    assert select(jobs, {"mem_mb": 100}) == ["high", "small"]


def test_a_device_is_no_limited_resource() -> None:
    assert select([job("a", device="pi5"), job("b", device="pi5")], {"_nodes": 9, "device": "text"}) == ["a", "b"]


def test_the_rate_limit_is_kept() -> None:
    assert select([job("a", _job_count=1), job("b", _job_count=1)], {"_job_count": 1}) == ["a"]
