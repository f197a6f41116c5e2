"""Settings of an inference point: what can never work is refused by key, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from sidewinder.errors import ConfigError
from sidewinder.model import FileCheck, Found
from sidewinder.workloads.inference import request_of
from sidewinder.workloads.llama import Llama
from sidewinder.workloads.llamacpp import LlamaCpp
from workloads.helpers_llama import device, point

WORKLOADS = {"llama": Llama(), "llamacpp": LlamaCpp()}


@pytest.mark.parametrize("backend", WORKLOADS)
@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("model", {"model_path": None}),
        ("threads", {"threads": 0}),
        ("threads", {"threads": -1}),
        ("threads", {"threads": True}),
        ("threads", {"threads": 1.5}),
        ("repetitions", {"repetitions": 0}),
        ("prompt_tokens", {"prompt_tokens": -1}),
        ("prompt_tokens", {"prompt_tokens": 0, "output_tokens": 0}),
        ("output_tokens", {"output_tokens": "many"}),
        ("context_tokens", {"context_tokens": -5}),
        ("batch_size", {"batch_size": 0}),
        ("warmup", {"warmup": -1}),
        ("flash_attention", {"flash_attention": "sometimes"}),
        ("kv_quantization", {"kv_quantization": "q9_9"}),
        ("kv_quantization", {"kv_quantization": "q8_0", "flash_attention": False}),
        ("extra.timeout_s", {"extra": {"timeout_s": 0}}),
        ("extra.timeout_s", {"extra": {"timeout_s": "long"}}),
        ("extra.timeout_s", {"extra": {"timeout_s": float("nan")}}),
        ("extra.env", {"extra": {"env": ["A=b"]}}),
        ("extra.env", {"extra": {"env": {"A=b": "c"}}}),
        ("extra.env.A", {"extra": {"env": {"A": None}}}),
        ("mode", {"mode": "vibes"}),
    ],
)
def test_impossible_settings_are_refused_by_key(backend: str, key: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        WORKLOADS[backend].validate(point(backend=backend, **settings))
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("key", "settings"),
    [
        ("output_tokens", {"output_tokens": 0}),
        ("prompt_tokens", {"prompt_tokens": 0}),
        ("extra.port", {"extra": {"port": 0}}),
        ("extra.port", {"extra": {"port": "http"}}),
        ("extra.startup_timeout_s", {"extra": {"startup_timeout_s": -1}}),
        ("extra.server_args", {"extra": {"server_args": ["--port", "80"]}}),
        ("extra.server_args", {"extra": {"server_args": {"a": 1}}}),
    ],
)
def test_impossible_latency_settings_are_refused_by_key(key: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        LlamaCpp().validate(point(mode="latency", **settings))
    assert refused.value.key == key


def test_the_embedded_engine_has_no_latency_mode() -> None:
    with pytest.raises(ConfigError, match="throughput"):
        Llama().validate(point(backend="llama", mode="latency"))


def test_what_a_point_leaves_out_is_what_mlsys_measures() -> None:
    request = request_of(point(prompt_tokens=None, output_tokens=None, repetitions=None, threads=None))
    assert (request.prompt_tokens, request.output_tokens, request.repetitions) == (128, 128, 3)
    assert (request.threads, request.batch_size, request.cache_type, request.flash_attention) == (None,) * 4


@pytest.mark.parametrize(
    ("written", "meant"),
    [(True, "on"), (1, "on"), ("on", "on"), (False, "off"), (0, "off"), ("OFF", "off"), ("auto", "auto"), (-1, "auto")],
)
def test_flash_attention_may_be_written_in_every_usual_way(written: Any, meant: str) -> None:
    assert request_of(point(flash_attention=written)).flash_attention == meant


def test_a_quantised_cache_is_fine_where_flash_attention_is_not_off() -> None:
    for flash_attention in (True, "auto", None):
        assert request_of(point(kv_quantization="q8_0", flash_attention=flash_attention)).cache_type == "q8_0"
    assert request_of(point(kv_quantization="f16", flash_attention=False)).cache_type == "f16"


@pytest.mark.parametrize("backend", WORKLOADS)
def test_a_task_carries_what_all_llama_tasks_share(backend: str) -> None:
    found = Found("/bin/engine", details={"programs": {"llama-bench": {"binary": "/bin/engine", "version": None}}})
    block = {"env": {"A": "block", "B": "block"}}
    task = WORKLOADS[backend].build_task(
        point(
            backend=backend,
            model_sha256="ab" * 32,
            governor="performance",
            prepare={"settle_s": 5},
            sample_hz=2.0,
            extra={"timeout_s": 7, "env": {"B": "point", "N": 3}},
        ),
        device(env={"A": "device", "C": "device"}, dram_peak_GBs=17.1, backends={backend: block}),
        found,
    )
    assert task.checks == (FileCheck("/srv/models/tiny.gguf", "ab" * 32, "model tiny"),)
    assert "/srv/models/tiny.gguf" in task.argv  # equal to its check: the agent puts the resolved path there
    own = {name: task.env[name] for name in ("A", "B", "C", "N")}
    assert own == {"A": "block", "B": "point", "C": "device", "N": "3"}
    assert (task.timeout_s, task.sample_hz, task.notes["dram_peak_GBs"]) == (7.0, 2.0, 17.1)
    assert task.prepare == {"settle_s": 5, "governor": "performance"}
    assert task.require == ("governor",)


def test_a_models_own_batch_size_is_used_unless_the_axis_says_another():
    from dataclasses import replace

    from sidewinder.model import Point
    from sidewinder.workloads.inference import request_of

    point = Point("id", "e", "local", "llama", "throughput", model="m", model_path="m.gguf", extra={"batch_size": 64})
    assert request_of(point).batch_size == 64
    assert request_of(replace(point, batch_size=32)).batch_size == 32
