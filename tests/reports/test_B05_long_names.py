"""B05: however many and long the values, a run id is short, safe and unique; the whole values are in the point."""

from __future__ import annotations

import re

import pytest

from sidewinder import config
from sidewinder.errors import ConfigError


def lab(device: str) -> dict[str, object]:
    # the values differ only far behind what any name could hold
    parameters: dict[str, object] = {f"parameter_{number:02}": "x" * 25 for number in range(13)}
    parameters["parameter_13"] = [f"{'y' * 24}{end}" for end in "abc"]
    return {
        "devices": {device: {"image": "lab/bench:1"}},
        "models": {"models/llama/7B.gguf": "models/llama/7B.gguf"},
        "matrix": {"devices": device, "models": "models/llama/7B.gguf", "backend": "noop", "parameters": parameters},
    }


def test_ids_are_bounded_unique_and_hold_no_slash() -> None:
    plan = config.load(lab("d" * 63))
    assert len(plan.points) == 3
    for run_id, point in plan.points.items():
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", run_id)
        assert run_id.startswith("d" * 20 + "-models-llama-7b")
        assert len(point.parameters) == 14
        assert all(len(value) == 25 for value in point.parameters.values())
    assert list(plan.points) == list(config.load(lab("d" * 63)).points)


def test_a_device_name_of_70_characters_is_refused() -> None:
    with pytest.raises(ConfigError, match="1 to 63 of the characters"):
        config.load(lab("d" * 70))
