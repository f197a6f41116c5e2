"""A config written for ml-systems-lab 0.2.2 gives the same points here, and is refused where it is refused there.

Where we differ on purpose (config/README.md, "Coming from mlsys") is either not generated or stated in a test.
"""

from __future__ import annotations

import json
import pathlib
import tempfile
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from mlsyslab import config as theirs

from sidewinder import config as ours
from sidewinder.errors import ConfigError
from sidewinder.model import Point

DEVICES, MODELS = ("local", "pi5", "k8s-cpu2"), ("q4", "q8", "split")
SHARED = (
    "experiment",
    "backend",
    "mode",
    "model_path",
    "quantization",
    "prompt_tokens",
    "output_tokens",
    "context_tokens",
    "batch_size",
    "threads",
    "governor",
    "freq_khz",
    "repetitions",
    "warmup",
    "flash_attention",
    "kv_quantization",
    "sample_power",
    "prepare",
    "extra",
)


def axis(*values: Any) -> st.SearchStrategy[Any]:
    """A value, or a list of distinct ones; null and the empty list say that it is not set."""
    one = st.sampled_from(values)
    listed = st.lists(one, max_size=3, unique=True)
    return st.one_of(one, listed, listed, st.none(), listed.map(lambda found: [None, *found]))


AXES = {
    "models": axis(*MODELS),
    "modes": axis("latency"),
    "threads": axis(1, 2, 4),
    "prompt_tokens": axis(16, 64),
    "output_tokens": axis(0, 32),
    "context_tokens": axis(512, 1024),
    "batch_sizes": axis(1, 8),
    "governors": axis("performance", "powersave"),
    "freqs_khz": axis(1_500_000),
    "kv_quantizations": axis("q8_0"),
    "backend": st.sampled_from(["llamacpp", "onnxruntime", None]),
    "repetitions": st.sampled_from([None, 1, 5]),
    "warmup": st.sampled_from([None, 0, 2]),
    "flash_attention": st.sampled_from([None, True, False]),
    "sample_power": st.sampled_from([None, True, False]),
    "sample_hz": st.sampled_from([None, 5]),
    "prepare": st.sampled_from([None, {"settle_s": 5}, {"governor": "performance", "restore_governor": True}]),
    "tags": st.sampled_from([None, [], ["night"]]),
    "extra": st.sampled_from([None, {"timeout_s": 60}, {"bench_args": ["--numa", "distribute"]}]),
}
SOME_DEVICES = st.one_of(st.sampled_from(DEVICES), st.lists(st.sampled_from(DEVICES), min_size=1, unique=True))
SOME_AXES = st.lists(st.sampled_from(sorted(AXES)), max_size=5, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: AXES[name] for name in names})
)
BLOCK = st.builds(lambda devices, rest: {"devices": devices, **rest}, SOME_DEVICES, SOME_AXES)
MODEL = st.one_of(
    st.just("models/x.gguf"),
    st.fixed_dictionaries(
        {"path": st.just("/models/x.gguf")},
        optional={
            "paths": st.dictionaries(st.sampled_from(DEVICES), st.just("/mnt/x.gguf")),
            "quantization": st.sampled_from(["q4_1", "q8_0"]),
            "tags": st.just(["big"]),
        },
    ),
)
CONFIG = st.fixed_dictionaries(
    {
        "devices": st.just({"local": {}, "pi5": {"host": "pi5.lan"}, "k8s-cpu2": {"kind": "k8s", "image": "lab/b:1"}}),
        "models": st.fixed_dictionaries(dict.fromkeys(MODELS, MODEL)),
        "matrix": st.one_of(BLOCK, st.lists(BLOCK, min_size=1, max_size=2)),
    },
    optional={"experiment": st.sampled_from(["edge", None]), "defaults": SOME_AXES},
)


def spoil(asked: dict[str, Any], draw: Any) -> None:
    """Put one mistake of M-20 somewhere into a good config."""
    blocks = asked["matrix"] if isinstance(asked["matrix"], list) else [asked["matrix"]]
    asked["matrix"] = blocks
    at = draw(st.integers(0, len(blocks) - 1))
    mistakes = {
        "no devices": lambda: asked.update(devices=draw(st.sampled_from([{}, None, []]))),
        "no matrix": lambda: asked.update(matrix=draw(st.sampled_from([{}, None, []]))),
        "no mapping": lambda: blocks.insert(at, draw(st.sampled_from([3, "local", None, ["local"]]))),
        "no device": lambda: blocks[at].update(devices=draw(st.sampled_from([None, [], ["local", None]]))),
        "unknown device": lambda: blocks[at].update(devices=draw(st.sampled_from(["pi6", ["local", "pi6"]]))),
        "unknown model": lambda: blocks[at].update(models=draw(st.sampled_from(["q5", ["q4", "q5"]]))),
        "no path": lambda: (
            asked["models"].update(q4={"paths": {"pi5": "/x"}}),
            blocks[at].update(models="q4", devices=["pi5", "local"]),
        ),
        "same value": lambda: blocks[at].update(threads=[2, 4, 2]),
        "same block": lambda: blocks.append(dict(blocks[at])),
    }
    mistakes[draw(st.sampled_from(sorted(mistakes)))]()


def fields_of_ours(point: Point) -> dict[str, Any]:
    found = {name: getattr(point, name) for name in SHARED}
    return {**found, "device_id": point.device, "model": point.model or "unknown", "tags": list(point.tags)}


def fields_of_theirs(spec: Any) -> dict[str, Any]:
    found = {name: getattr(spec, name) for name in SHARED}
    found["sample_power"] = bool(found["sample_power"])
    return {**found, "device_id": spec.device_id, "model": spec.model, "tags": list(spec.tags)}


def both(asked: dict[str, Any]) -> tuple[list[dict[str, Any]] | str, list[dict[str, Any]] | str]:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "edge.json")
        file.write_text(json.dumps(asked))
        try:
            plan = ours.load_files([str(file)], check_workloads=False)
            mine: Any = [fields_of_ours(point) for point in plan.points.values()]
        except ConfigError as error:
            mine = str(error)
        try:
            their: Any = [fields_of_theirs(spec) for spec in theirs.load(str(file)).specs]
        except theirs.ConfigError as error:
            their = str(error)
    return mine, their


CHEAP = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@CHEAP
@given(CONFIG)
def test_same_points(asked: dict[str, Any]) -> None:
    mine, their = both(asked)
    event("refused" if isinstance(their, str) else "loaded")
    if isinstance(their, list):
        assert mine == their
    else:
        # their run id leaves out warm-up, prepare, extra and path: blocks that differ in these only are refused there
        assert "are identical" in their
        if isinstance(mine, list):
            known = [{**point, **dict.fromkeys(("warmup", "prepare", "extra", "tags"))} for point in mine]
            assert any(point in known[:index] for index, point in enumerate(known)), their
        else:
            assert "the same measurement" in mine


@CHEAP
@given(CONFIG, st.data())
def test_same_refusals(asked: dict[str, Any], data: st.DataObject) -> None:
    spoil(asked, data.draw)
    mine, their = both(asked)
    assert (isinstance(mine, str), isinstance(their, str)) == (True, True)


@pytest.mark.parametrize(
    "section",
    [
        {"devices": {}},
        {"matrix": []},
        {"matrix": [3]},
        {"matrix": [{}]},
        {"matrix": [{"threads": 1}]},
        {"matrix": [{"devices": None}]},
        {"matrix": [{"devices": "pi6"}]},
        {"matrix": [{"devices": "local", "models": "none"}]},
        {"matrix": [{"devices": "pi5", "models": "here"}]},
        {"matrix": [{"devices": "local"}, {"devices": ["local"], "tags": ["again"]}]},
    ],
)
def test_each_refusal_of_theirs_is_one_of_ours(section: dict[str, Any]) -> None:
    good = {
        "devices": {"local": {}, "pi5": {"host": "h"}},
        "models": {"here": {"paths": {"local": "x"}}},
        "matrix": [{"devices": "local"}],
    }
    assert [isinstance(found, list) for found in both(good)] == [True, True]
    assert [isinstance(found, str) for found in both({**good, **section})] == [True, True]


def test_what_they_cannot_tell_apart_we_can() -> None:
    blocks = [{"devices": "local", "warmup": count} for count in (0, 1)]
    mine, their = both({"devices": {"local": {}}, "matrix": blocks})
    assert isinstance(mine, list)
    assert isinstance(their, str)


def test_a_real_load_refuses_a_backend_that_we_do_not_have() -> None:
    asked = {
        "devices": {"a": {"onnxruntime": {"providers": ["CPU"]}}},
        "matrix": {"devices": "a", "backend": "onnxruntime"},
    }
    assert len(ours.load(asked, check_workloads=False).points) == 1
    with pytest.raises(ConfigError, match="no such backend; known are command, "):
        ours.load(asked)
