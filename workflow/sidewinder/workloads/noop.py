"""No-op: the workload that measures nothing, on purpose.

Its points go through everything that a real one does — queue, turn, journal, record, report — except a device, and
end inside the engine. That makes it the way to measure what the lab itself costs per point, and a way to try out a
config without touching a machine. Its records are ``ok``, carry no metric and say what they are in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from sidewinder.model import Device, Found, Json, Measurement, Point, RawResult, Task

from .base import DeviceView

_MEASUREMENT: Final = Measurement(ok=True, backend={"name": "noop"}, warnings=("workload noop: nothing was measured",))
_TASK: Final = Task(argv=(), inline={"ok": True})
_FOUND: Final = Found()


class Noop:
    """Nothing; see the module."""

    backend: ClassVar[str] = "noop"
    modes: ClassVar[frozenset[str]] = frozenset({"noop", "throughput", "latency"})
    inline: ClassVar[bool] = True  # the engine asks no device for it

    def validate(self, point: Point) -> None:
        """Every setting is fine: none has an effect."""

    async def discover(self, view: DeviceView, settings: Mapping[str, Json]) -> Found:
        return _FOUND

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        return _TASK

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        return _MEASUREMENT

    def headline(self, metrics: Mapping[str, Json]) -> str:
        return "nothing measured"
