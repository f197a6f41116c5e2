"""Helpers of the config tests: a config as text, loaded the way Snakemake would hand it over."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sidewinder import config
from sidewinder.errors import ConfigError, ConfigErrors
from sidewinder.model import Device, Found, Json, Measurement, Plan, Point, RawResult, Task


class FakeWorkload:
    """Accepts everything but a parameter called ``bad``; remembers what it was asked about."""

    backend = "fake"
    modes = frozenset({"throughput", "latency"})

    def __init__(self) -> None:
        self.asked: list[Point] = []

    def validate(self, point: Point) -> None:
        self.asked.append(point)
        if "bad" in point.parameters:
            raise ConfigError("this can never work", key="parameters.bad", value=point.parameters["bad"])

    async def discover(self, view: Any, settings: Mapping[str, Json]) -> Found:
        raise NotImplementedError

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        raise NotImplementedError

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        raise NotImplementedError

    def headline(self, metrics: Mapping[str, Json]) -> str:
        return ""


class Folder:
    """A folder with a lab.yaml and whatever lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, text: str) -> str:
        (self.path / name).write_text(textwrap.dedent(text), encoding="utf-8")
        return str(self.path / name)

    def load(self, text: str, *more: str, overrides: Mapping[str, Any] | None = None, **options: Any) -> Plan:
        files = [self.write(f"lab{index or ''}.yaml", one) for index, one in enumerate((text, *more))]
        return config.load_files(files, overrides, base_dir=str(self.path), **options)

    def problems(self, text: str, *more: str, **options: Any) -> list[ConfigError]:
        """The problems of a config that must not load; every one of them is fit to be shown."""
        with pytest.raises(ConfigError) as caught:
            self.load(text, *more, **options)
        error = caught.value
        return list(error.problems) if isinstance(error, ConfigErrors) else [error]

    def problem(self, text: str, *more: str, **options: Any) -> ConfigError:
        """The only problem."""
        (error,) = self.problems(text, *more, **options)
        return error


def values(plan: Plan, *fields: str) -> list[Any]:
    """One field (or a tuple of several) of every point, in config order."""
    rows = [tuple(getattr(point, field) for field in fields) for point in plan.points.values()]
    return [row[0] for row in rows] if len(fields) == 1 else rows
