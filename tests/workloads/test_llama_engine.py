"""The embedded engine, really run: the driver as a device would start it, on a tiny model of random weights."""

from __future__ import annotations

import ast
import asyncio
import functools
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidewinder.errors import ConfigError, DeviceFault
from sidewinder.model import Found, Measurement, Point, Task
from sidewinder.workloads.llama import Llama, driver_source
from workloads.helpers_llama import ThisMachine, View, device, point, run_task

pytest.importorskip("cyllama", reason="the embedded engine has wheels for Linux x86_64 only")


def measure(**settings: Any) -> Measurement:
    workload = Llama()
    asked = point(backend="llama", **{"prompt_tokens": 16, "output_tokens": 4, "repetitions": 2, **settings})
    workload.validate(asked)
    task = task_of(asked)
    return workload.parse(asked, task, run_task(task))


@functools.cache
def found_here() -> Found:
    return asyncio.run(Llama().discover(ThisMachine(), {}))


def task_of(asked: Point) -> Task:
    return Llama().build_task(asked, device(), found_here())


def test_a_real_run_is_a_measurement(tiny_model: Path) -> None:
    got = measure(model_path=str(tiny_model))
    assert got.ok, got.message
    assert set(got.metrics) == {"prefill_tps", "decode_tps", "stdev_pct", "load_ms", "decode_bw_GBs"}
    assert all(value > 0 for value in got.metrics.values())
    assert [len(samples) for samples in got.samples.values()] == [2, 2]
    assert got.workload["model_bytes"] == tiny_model.stat().st_size
    assert got.backend["version"] == "cyllama 0.2.18"
    assert got.backend["binary"] == sys.executable
    assert got.backend["library_versions"]["cyllama"] == "0.2.18"


@pytest.mark.parametrize(
    "settings",
    [
        {"context_tokens": 32, "batch_size": 8},
        {"kv_quantization": "q8_0", "repetitions": 1},
        {"prompt_tokens": 0, "flash_attention": False, "warmup": 0},
        {"output_tokens": 0, "kv_quantization": "q4_0", "flash_attention": True, "warmup": 2},
    ],
    ids=str,
)
def test_every_setting_reaches_the_engine_and_comes_back(tiny_model: Path, settings: dict[str, Any]) -> None:
    got = measure(model_path=str(tiny_model), **settings)
    assert got.ok, got.message


def test_threads_left_open_are_the_cores_that_may_be_used(tiny_model: Path) -> None:
    asked = point(backend="llama", model_path=str(tiny_model), threads=None, prompt_tokens=8, output_tokens=0)
    task = task_of(asked)
    core = min(os.sched_getaffinity(0))
    bound = replace(task, argv=("taskset", "-c", str(core), *task.argv))
    assert Llama().parse(asked, bound, run_task(bound)).workload["threads"] == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "not found"),
        (b"", "failed to load model"),
        (b"<html><body>404</body></html>", "valid GGUF"),
        (b"GGUF" + b"\x03\x00\x00\x00" + b"\xff" * 64, "failed to load model"),
    ],
)
def test_a_model_that_cannot_be_loaded_is_a_failed_result(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "broken.gguf"
    if content is not None:
        path.write_bytes(content)
    got = measure(model_path=str(path))
    assert not got.ok
    assert "exit status 1" in (got.message or "")
    assert words in (got.message or "")


def test_a_truncated_model_is_a_failed_result_with_the_engines_own_reason(tiny_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_model.read_bytes()[:8_000_000])
    got = measure(model_path=str(path))
    assert not got.ok
    assert "data is not within the file bounds" in (got.message or "") or "failed to load" in (got.message or "")
    assert "sha256" in (got.message or "")


def test_a_context_that_does_not_fit_is_a_failed_result(tiny_model: Path) -> None:
    asked = point(backend="llama", model_path=str(tiny_model), output_tokens=1, context_tokens=1_000_000)
    task = task_of(asked)  # its cache takes 7 GB
    limited = replace(task, argv=("sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh", *task.argv))
    got = Llama().parse(asked, limited, run_task(limited))
    assert not got.ok
    assert "did not fit in memory" in (got.message or "")
    assert "failed to allocate buffer" in (got.message or "")


def test_stdout_that_is_full_is_never_a_success(tiny_model: Path) -> None:
    task = task_of(point(backend="llama", model_path=str(tiny_model), prompt_tokens=8, output_tokens=0, repetitions=1))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(task.argv, input=task.stdin, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode != 0
    assert b"No space left" in done.stderr


def test_a_home_folder_in_the_model_path_is_that_of_the_device(tiny_model: Path) -> None:
    os.link(tiny_model, home_model := tiny_model.parent / "home.gguf")
    got = measure(model_path=f"~/{home_model.name}", extra={"env": {"HOME": str(home_model.parent)}})
    assert got.ok, got.message


# -- discovery --------------------------------------------------------------------------------------------------------


def discover(view: View, settings: dict[str, Any]) -> Found:
    return asyncio.run(Llama().discover(view, settings))


def answer(**fields: Any) -> tuple[int, bytes, bytes]:
    told = {"python": "/v/bin/python", "python_version": "3.11.2", **fields}
    return 0, b"site prints something\n" + json.dumps(told).encode() + b"\n", b""


def test_the_interpreter_is_the_declared_one_else_the_agents_else_python3() -> None:
    engine = answer(version="0.2.18", commit="b64739e")
    view = View(existing={"~/v/bin/python": "/home/u/v/bin/python"}, answers={"/home/u/v/bin/python": engine})
    assert discover(view, {"python": "~/v/bin/python"}).binary == "/home/u/v/bin/python"
    view = View(facts={"python_executable": "/agent/python"}, answers={"/agent/python": engine})
    found = discover(view, {})
    assert (found.binary, found.version) == ("/agent/python", "cyllama 0.2.18")
    assert discover(View(answers={"python3": engine}), {}).binary == "python3"
    assert discover(View(answers={"python3.12": engine}), {"python": "python3.12"}).binary == "python3.12"


def test_a_declared_interpreter_that_is_not_there_is_a_fault_of_the_device() -> None:
    with pytest.raises(DeviceFault, match=r"llama\.python names /nowhere/python"):
        discover(View(), {"python": "/nowhere/python"})
    with pytest.raises(DeviceFault, match="no interpreter 'python3'"):
        discover(View(), {})
    with pytest.raises(ConfigError) as refused:
        discover(View(), {"python": 3})
    assert refused.value.key == "llama.python"


def test_a_missing_engine_names_the_command_that_installs_it() -> None:
    view = View(answers={"python3": answer(error="ModuleNotFoundError: No module named 'cyllama'")})
    with pytest.raises(DeviceFault, match=r"python3 -m pip install 'cyllama==0\.2\.18'"):
        discover(view, {})
    view = View(facts={"machine": "aarch64"}, answers=view.answers)
    with pytest.raises(DeviceFault, match="no wheel for aarch64: use backend llamacpp"):
        discover(view, {})


def test_an_engine_that_kills_its_interpreter_is_a_fault_of_the_device() -> None:
    view = View(answers={"python3": (-4, b"", b"")})
    with pytest.raises(DeviceFault, match="status -4"):
        discover(view, {})


def test_a_real_interpreter_without_the_engine_is_told_from_one_with_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    with pytest.raises(DeviceFault, match="No module named 'cyllama'"):
        asyncio.run(Llama().discover(ThisMachine(), {"python": str(tmp_path / "bare/bin/python")}))


def test_the_driver_needs_nothing_of_ours() -> None:
    tree = ast.parse(driver_source())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    foreign = {name for name in imported if name.split(".")[0] not in sys.stdlib_module_names}
    assert foreign == {"cyllama.llama"}
