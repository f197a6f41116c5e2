"""LlamaCpp: the workload that measures with the real llama.cpp programs found on a device.

``throughput`` is llama-bench (prefill and decode), ``latency`` is llama-server (time to first token). The device's
block says where they are: ``llamacpp: {bin_dir: ~/llama.cpp/build/bin, env: {}, python: python3}``. A ``bin_dir`` that
lacks a program is said so: taking another build from a well-known folder instead would measure another engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Final

from sidewinder.errors import ConfigError, DeviceFault
from sidewinder.model import EMPTY, Device, Found, Json, Measurement, Point, RawResult, Task

from . import bench_rows, llamacpp_bench, llamacpp_server
from .base import DeviceView
from .inference import check_mode, environment, last_line, request_of, task_for
from .interpreter import interpreter_of

PROGRAMS: Final = {"throughput": "llama-bench", "latency": "llama-server"}
WELL_KNOWN: Final = (
    "~/llama.cpp/build/bin",
    "~/llama.cpp/bin",
    "~/llama.cpp",
    "~/.local/bin",
    "/opt/llama.cpp/build/bin",
    "/opt/llama.cpp/bin",
    "/usr/local/bin",
    "/usr/bin",
)
_VERSION: Final = re.compile(r"^version: *(.+)$", re.MULTILINE)


class LlamaCpp:
    """Prefill and decode by llama-bench, latency by llama-server; see the module."""

    backend: ClassVar[str] = "llamacpp"
    modes: ClassVar[frozenset[str]] = frozenset(PROGRAMS)

    def validate(self, point: Point) -> None:
        check_mode(point, self.modes)
        request = request_of(point)
        part = llamacpp_bench if point.mode == "throughput" else llamacpp_server
        part.check(request, point.extra)

    async def discover(self, view: DeviceView, settings: Mapping[str, Json]) -> Found:
        env = environment("llamacpp.env", settings.get("env"))
        roots = _roots(settings)
        programs: dict[str, Json] = {}
        for program in PROGRAMS.values():
            names = (program, f"{program}.exe")
            path = await view.first_existing([f"{root.rstrip('/')}/{name}" for root in roots for name in names])
            if path is not None:
                programs[program] = {"binary": path, "version": await _version_of(view, path, env)}
        if not programs:
            raise DeviceFault(f"{view.device.id}: {_absent(tuple(PROGRAMS.values()), settings)}")
        details: dict[str, Json] = {"programs": programs}
        if PROGRAMS["latency"] in programs:
            details["python"] = await interpreter_of(view, settings, key="llamacpp.python")
        first = next(iter(programs.values()))
        return Found(binary=first["binary"], version=first["version"], details=details)

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        self.validate(point)
        request = request_of(point)
        program = PROGRAMS[point.mode]
        there = found.details.get("programs", {}).get(program)
        if there is None:
            # The device is not at fault: its points of the other mode can be measured.
            settings = device.backends.get(self.backend, EMPTY)
            raise ConfigError(f"{device.id}: {_absent((program,), settings)}", key="mode", value=point.mode)
        if point.mode == "throughput":
            task = llamacpp_bench.bench_task(there["binary"], request, point.extra)
        else:
            task = llamacpp_server.server_task(found.details["python"], there["binary"], request, point.extra)
        return task_for(point, device, request, replace(task, notes=dict(there)))

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        request = request_of(point)
        if point.mode == "throughput":
            return bench_rows.measurement(
                point, request, task, raw, program=PROGRAMS["throughput"], hints=llamacpp_bench.HINTS
            )
        return llamacpp_server.measurement(point, request, task, raw)

    def headline(self, metrics: Mapping[str, Json]) -> str:
        if "ttft_ms" not in metrics:
            return bench_rows.headline(metrics)
        shown = [f"first token {metrics['ttft_ms']:.0f} ms"]
        if "decode_tps" in metrics:
            shown.append(f"decode {metrics['decode_tps']:.1f} t/s")
        return ", ".join(shown)


def _roots(settings: Mapping[str, Json]) -> tuple[str, ...]:
    bin_dir = settings.get("bin_dir")
    if bin_dir is None:
        return WELL_KNOWN
    if not isinstance(bin_dir, str) or not bin_dir:
        raise ConfigError("must be a folder on the device", key="llamacpp.bin_dir", value=bin_dir)
    return (bin_dir,)


async def _version_of(view: DeviceView, path: str, env: Mapping[str, str]) -> str | None:
    """What ``--version`` says. Builds that do not know the flag tell their build in every row instead."""
    prefix = ["env", *(f"{name}={value}" for name, value in env.items())] if env else []
    try:
        status, stdout, stderr = await view.run([*prefix, path, "--version"])
    except FileNotFoundError:
        raise DeviceFault(f"{view.device.id}: {path} is there but cannot be started (no execute permission?)") from None
    if status in (126, 127) or status < 0:
        # 127 is also the dynamic loader's: a library is missing. A signal: a build for another processor.
        words = last_line(stderr) or f"status {status}"
        raise DeviceFault(f"{view.device.id}: {path} is there but does not run: {words}")
    match = _VERSION.search((stdout + b"\n" + stderr).decode("utf-8", "replace"))
    return match.group(1).strip() if match else None


def _absent(programs: tuple[str, ...], settings: Mapping[str, Json]) -> str:
    what = " and no ".join(programs)
    if settings.get("bin_dir") is not None:
        return f"there is no {what} in llamacpp.bin_dir {settings['bin_dir']}"
    return (
        f"no {what} in {', '.join(WELL_KNOWN)}\n"
        "  Build llama.cpp there or say where it is: llamacpp: {bin_dir: ...}. On a Debian machine\n"
        "  scripts/get_llama_bench.sh DIR unpacks both without installing anything: llamacpp: {bin_dir: DIR/bin}"
    )
