"""Sidewinder's scheduler plugin for Snakemake: first fit by priority, in one pass over what is ready.

Snakemake's greedy selection is quadratic in the ready jobs, its default one needs a solver. Turns, groups and limits of
devices are the engine's business; here nothing has to be held back but what a person limits by `--resources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase
from snakemake_interface_scheduler_plugins.settings import SchedulerSettingsBase

__all__ = ["Scheduler", "SchedulerSettings"]


@dataclass
class SchedulerSettings(SchedulerSettingsBase):  # type: ignore[misc]  # the interface has no types
    """Nothing to set."""


class Scheduler(SchedulerBase):  # type: ignore[misc]
    """Each job in the order of priority takes what it needs, if all of that is still free."""

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, int | str],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any]:
        free = {name: amount for name, amount in available_resources.items() if isinstance(amount, int)}
        selected = []
        for job in sorted(selectable_jobs, key=lambda job: job.priority, reverse=True):
            resources = job.scheduler_resources
            needed = [(name, amount) for name in free if (amount := resources.get(name))]
            if all(free[name] >= amount for name, amount in needed):
                for name, amount in needed:
                    free[name] -= amount
                # counted by Snakemake as one, whatever the job says: limits how many start in one timespan
                selected.append(job)
        return selected
