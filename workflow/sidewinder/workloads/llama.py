"""Llama: the workload that measures llama.cpp inside a Python interpreter of the device, by pip alone.

The engine is cyllama, the loops are llama-bench's (``llama_driver.py``), so prefill and decode mean the same; on one
and the same engine source Python was 0-4 % slower. Still do not mix ``llama`` and ``llamacpp`` in one comparison:
they are different builds, and the build alone was seen to move a figure by a factor of three.

The device's block may name the interpreter: ``llama: {python: ~/venv/bin/python, env: {}}``. Without it the one that
runs the agent is used. An interpreter without the engine is a fault of the device, not of a point.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from sidewinder.errors import ConfigError, DeviceFault
from sidewinder.model import Device, Found, Json, Measurement, Point, RawResult, Task

from . import bench_rows
from .base import DeviceView
from .inference import Request, check_mode, environment, request_of, task_for
from .interpreter import interpreter_of

ENGINE: Final = "cyllama==0.2.18"
_ENGINE_MACHINES: Final = ("x86_64", "amd64")  # the only ones it has wheels for
_PROBE: Final = """\
import json, sys
from importlib.metadata import version
answer = {"python": sys.executable, "python_version": sys.version.split()[0]}
try:
    from cyllama.llama import llama_cpp
    answer.update(version=version("cyllama"), commit=llama_cpp.ggml_commit())
except Exception as error:
    answer["error"] = "%s: %s" % (type(error).__name__, error)
print(json.dumps(answer))
"""
_HINTS: Final = {
    "Failed to create llama_context": "The context did not fit in memory: fewer tokens, a smaller context_tokens or "
    "kv_quantization: q8_0 take less.",
    "failed to load model": "The file is there (it was checked before the run): it is damaged, cut short or of a "
    "format newer than this engine. A declared sha256 tells the first two apart from the third.",
}


class Llama:
    """Prefill and decode of a GGUF model in process; see the module."""

    backend: ClassVar[str] = "llama"
    modes: ClassVar[frozenset[str]] = frozenset({"throughput"})

    def validate(self, point: Point) -> None:
        check_mode(point, self.modes)
        request_of(point)

    async def discover(self, view: DeviceView, settings: Mapping[str, Json]) -> Found:
        environment("llama.env", settings.get("env"))
        python = await interpreter_of(view, settings, key="llama.python")
        try:
            status, stdout, stderr = await view.run([python, "-I", "-c", _PROBE])
        except FileNotFoundError:
            raise DeviceFault(
                f"{view.device.id}: there is no interpreter {python!r}\n"
                "  Name one that has the engine in the device's block: llama: {python: ~/venv/bin/python}"
            ) from None
        answer = _last_object(stdout)
        if status != 0 or answer is None:
            told = stderr.decode("utf-8", "replace").strip().splitlines()
            raise DeviceFault(
                f"{view.device.id}: {python} was asked for its engine and ended with status {status}"
                + (f": {told[-1]}" if told else "")
                + "\n  Loading the engine may have killed it (a build for another processor)."
            )
        if "error" in answer:
            raise DeviceFault(_engine_missing(view, python, answer))
        return Found(
            binary=python,
            version=f"cyllama {answer['version']}",
            details={"python_version": answer["python_version"], "commit": answer["commit"]},
        )

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        check_mode(point, self.modes)
        request = request_of(point)
        if found.binary is None:
            raise ConfigError(f"no interpreter was discovered on {device.id}", key="llama.python")
        task = Task(
            # The model's path is an argument of its own, equal to the path of its check, so that whoever resolves
            # the one can resolve the other.
            argv=(found.binary, "-I", "-", request.model_path, json.dumps(_driver_request(request))),
            stdin=driver_source(),
            notes={"binary": found.binary, "version": found.version},
        )
        return task_for(point, device, request, task)

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        return bench_rows.measurement(point, request_of(point), task, raw, program="llama", hints=_HINTS)

    def headline(self, metrics: Mapping[str, Json]) -> str:
        return bench_rows.headline(metrics)


@functools.cache
def driver_source() -> bytes:
    return (Path(__file__).parent / "llama_driver.py").read_bytes()


def _driver_request(request: Request) -> dict[str, Json]:
    return {
        "n_prompt": request.prompt_tokens,
        "n_gen": request.output_tokens,
        "n_depth": request.depth_tokens,
        "n_threads": request.threads,
        "n_batch": request.batch_size,
        "cache_type": request.cache_type,
        "flash_attn": request.flash_attention,
        "warmup": 1 if request.warmup is None else request.warmup,
        "repetitions": request.repetitions,
    }


def _engine_missing(view: DeviceView, python: str, answer: Mapping[str, Json]) -> str:
    message = (
        f"{view.device.id}: {python} (Python {answer['python_version']}) cannot load the engine: {answer['error']}"
    )
    machine = str(view.facts.get("machine") or "")
    if machine and machine not in _ENGINE_MACHINES:
        return f"{message}\n  cyllama has no wheel for {machine}: use backend llamacpp there."
    return (
        f"{message}\n  On the device: {python} -m pip install '{ENGINE}'\n"
        "  (or into a virtual environment, named in the device's block: llama: {python: ~/venv/bin/python})"
    )


def _last_object(stdout: bytes) -> dict[str, Json] | None:
    for line in reversed(stdout.decode("utf-8", "replace").splitlines()):
        if line.startswith("{"):
            try:
                return dict(json.loads(line))
            except ValueError:
                return None
    return None
