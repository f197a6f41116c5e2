"""Run ids: stable, bounded, made of everything declared that changes the measurement and of nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from sidewinder import ids
from sidewinder.errors import ConfigError
from sidewinder.model import Device, Model, Point

DEVICE = Device("pi5", "ssh", settings={"host": "pi5.lan", "user": "bench"})
POINT = Point("", "edge", "pi5", "llama", "throughput", model="q4", model_path="m.gguf", threads=4, prompt_tokens=64)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def run_id(point: Point = POINT, device: Device = DEVICE, model: Model | None = None) -> str:
    return ids.with_run_id(point, device, model).run_id


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "x"]}, '{"a":[true,null,"x"],"b":1}'),
        ([2.0, -0.0, 0.0, 1e22, 1e-3, 0.1], "[2,0,0,10000000000000000000000,0.001,0.1]"),
        ((1, 2), "[1,2]"),
        ("Gera\u0308t", '"Gerät"'),
        ({"Gera\u0308t": 1}, '{"Gerät":1}'),
        ("\u2028/</script>", '"\u2028/</script>"'),
    ],
)
def test_canonical_json(value: Any, text: str) -> None:
    assert ids.canonical(value) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")], "\ud800", {1: 2}, object(), b"x"])
def test_what_has_no_canonical_text_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError):
        ids.canonical({"x": value})


def test_keys_that_are_one_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="normal form"):
        ids.canonical({"ä": 1, "a\u0308": 2})


@given(JSON)
def test_canonical_text_reads_back_as_itself(value: Any) -> None:
    try:
        text = ids.canonical(value)
    except ConfigError:
        reject()  # two keys of one normal form
    assert ids.canonical(json.loads(text)) == text


@given(st.lists(st.text(max_size=80), max_size=6), st.integers())
def test_a_run_id_is_a_kubernetes_name_and_a_file_name(parts: list[str], number: int) -> None:
    found = ids.run_id({"n": number}, parts)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", found)
    assert re.search(r"-[0-9a-f]{12}$", found)


def test_the_known_run_id_of_a_known_point() -> None:
    """Fails when anything about ids changes: then every lab would measure everything anew."""
    text = (
        '{"backend":"llama","device":"pi5","experiment":"edge","mode":"throughput","model":"q4","model_path":"m.gguf",'
        '"prompt_tokens":64,"threads":4}'
    )
    assert ids.canonical(ids.identity(POINT, DEVICE)) == text
    assert run_id() == f"pi5-q4-t4-p64-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


CHANGES: dict[str, Any] = {
    "experiment": "other",
    "backend": "llamacpp",
    "mode": "latency",
    "model": "q8",
    "model_path": "n.gguf",
    "model_sha256": "ab" * 32,
    "quantization": "q4_1",
    "prompt_tokens": 0,
    "output_tokens": 1,
    "context_tokens": 1,
    "batch_size": 1,
    "threads": 1,
    "governor": "performance",
    "freq_khz": 1,
    "repetitions": 1,
    "warmup": 0,
    "flash_attention": False,
    "kv_quantization": "f16",
    "sample_power": True,
    "sample_hz": 1,
    "prepare": {"settle_s": 1},
    "parameters": {"lr": 0.1},
    "extra": {"timeout_s": 1},
    "command": ("true",),
    "stage": ("./bench.sh",),
    "metrics": "json",
    "failover_from": "pi4",
    "device": "pi4",
}
SAME: dict[str, Any] = {"run_id": "x", "tags": ("x",), "priority": 5}


def test_every_field_of_a_point_is_decided() -> None:
    assert {field.name for field in fields(Point)} == {*CHANGES, *SAME}


@pytest.mark.parametrize("name", CHANGES)
def test_a_field_that_changes_the_measurement_changes_the_run_id(name: str) -> None:
    assert run_id(replace(POINT, **{name: CHANGES[name]})).rsplit("-", 1)[1] != run_id().rsplit("-", 1)[1]


@pytest.mark.parametrize("name", SAME)
def test_a_field_that_does_not_leaves_it(name: str) -> None:
    assert run_id(replace(POINT, **{name: SAME[name]})) == run_id()


def test_a_declared_digest_stands_for_the_path() -> None:
    first, second = (replace(POINT, model_sha256="ab" * 32, model_path=path) for path in ("here", "there"))
    assert run_id(first) == run_id(second)


@pytest.mark.parametrize(
    "change",
    [{"env": {"A": "1"}}, {"backends": {"llama": {"python": "py"}}}, {"secrets": ("TOKEN",)}],
    ids=lambda change: next(iter(change)),
)
def test_the_declared_environment_changes_the_run_id(change: dict[str, Any]) -> None:
    assert run_id(device=replace(DEVICE, **change)) != run_id()


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"host": "new.lan", "user": "me", "port": 2}},
        {"backends": {"llamacpp": {"bin_dir": "x"}}},
        {"max_concurrency": 3, "resource_group": "g", "recovery_after_s": 1, "lock": "x", "dram_peak_GBs": 17.0},
    ],
    ids=["address", "another backend", "scheduling"],
)
def test_the_way_to_a_device_does_not(change: dict[str, Any]) -> None:
    assert run_id(device=replace(DEVICE, **change)) == run_id()


@pytest.mark.parametrize("key", ["image", "cpu", "memory", "cpu_request", "memory_request", "runtime_class"])
def test_what_a_pod_is_made_of_changes_the_run_id(key: str) -> None:
    pod = Device("pi5", "kubernetes", settings={"namespace": "lab"})
    assert run_id(device=replace(pod, settings={**pod.settings, key: "x"})) != run_id(device=pod)
    assert run_id(device=replace(pod, settings={"namespace": "other", "pod": "p"})) == run_id(device=pod)


def test_a_secret_is_there_by_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "hf_very_secret")
    assert "hf_very_secret" not in ids.canonical(ids.identity(POINT, replace(DEVICE, secrets=("TOKEN",))))


def test_another_process_makes_the_same_id(tmp_path: Path) -> None:
    script = (
        "from sidewinder import ids\nfrom sidewinder.model import Device, Point\n"
        "p = Point('', 'edge', 'pi5', 'llama', 'throughput', parameters={'b': 0.1, 'ä': 2})\n"
        "print(ids.with_run_id(p, Device('pi5', 'ssh', env={'B': '1', 'A': '2'})).run_id)"
    )
    found = {
        subprocess.check_output(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed, "LC_ALL": "C"}, text=True
        )
        for seed in ("1", "2")
    }
    assert len(found) == 1


@pytest.mark.parametrize("text", ["a", "rig-07.lab", "7b-9_2", "A" * 63])
def test_a_device_id_that_may_be(text: str) -> None:
    assert ids.check_device_id(text) == text


@pytest.mark.parametrize("text", ["", "-a", ".a", "a/b", "a b", "Gerät", "a" * 70, "a\n", "..", 7, None])
def test_a_device_id_that_may_not_be(text: Any) -> None:
    with pytest.raises(ConfigError):
        ids.check_device_id(text)


def test_a_shard_id_does_not_depend_on_the_order() -> None:
    assert ids.shard_id(["b", "a"]) == ids.shard_id(("a", "b")) != ids.shard_id(["a"])
    assert re.fullmatch("[0-9a-f]{12}", ids.shard_id(["a"]))
