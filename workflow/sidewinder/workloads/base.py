"""A workload: a kind of measurement, found by entry point (group ``sidewinder.workloads``) under its ``backend`` name.

``discover`` may ask the device, ``build_task`` and ``parse`` are pure. A workload must not know what kind of device it
runs on: a test greps for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from sidewinder.model import Device, Found, Json, Measurement, Point, RawResult, Task


class DeviceView(Protocol):
    """What a workload may ask of a device while it discovers. Every answer is yes, no, or ``TransportError``."""

    device: Device
    facts: Mapping[str, Json]  # M-41 facts of the device, as its agent told them

    async def first_existing(self, paths: Sequence[str]) -> str | None:
        """The first of ``paths`` (``~`` allowed) that exists on the device, in one round trip; None: none does."""

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 60.0
    ) -> tuple[int, bytes, bytes]:
        """Run a short, unmeasured command: (returncode, stdout, stderr). ``FileNotFoundError`` if argv[0] is absent."""


class Workload(Protocol):
    """One backend. A workload whose class says ``inline = True`` ends inside the engine: no device is asked, nothing is
    started, ``parse`` gets an empty result (``noop``)."""

    backend: ClassVar[str]
    modes: ClassVar[frozenset[str]]

    def validate(self, point: Point) -> None:
        """Raise ``ConfigError`` (with ``key``) for settings that can never work. Called while the plan is made."""

    async def discover(self, view: DeviceView, settings: Mapping[str, Json]) -> Found:
        """Find the engine on the device (``settings``: the device's block for this backend). Cached per device by the
        engine. Raises ``DeviceFault`` (absent: says what to install) or ``TransportError`` (could not look)."""

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        """The process to run. Raises ``ConfigError``."""

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        """Read the output of a run that ended by itself (any return code). Raises ``ParseError``."""

    def headline(self, metrics: Mapping[str, Json]) -> str:
        """A few words with units for the progress line: "prefill 56.8 t/s, decode 15.6 t/s"."""
