"""The JSON Schema that editors read agrees with the loader on keys and shapes."""

from __future__ import annotations

import pathlib
from typing import Any

import jsonschema
import pytest
import yaml

from sidewinder import config

ROOT = pathlib.Path(__file__).parents[2]
SCHEMA = config.json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
LABS = [ROOT / "config/lab.yaml", *sorted((ROOT / "config/examples").glob("*.yaml"))]


def valid(lab: Any) -> bool:
    return bool(VALIDATOR.is_valid(lab))


def test_it_is_a_json_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", LABS, ids=lambda path: path.name)
def test_every_lab_of_ours_is_valid(path: pathlib.Path) -> None:
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("section", "good"),
    [
        ({}, True),
        ({"models": {"m": "p", "n": {"path": "p", "tags": "x"}}}, True),
        ({"matrix": [{"devices": ["a"], "threads": [1, None], "mode": "latency", "from": "t.csv"}]}, True),
        ({"devices": {"a": None, "b": {"host": "h", "llama": {"python": "p"}}}}, True),
        ({"devices": {"a": {"idle_gate": {"max_busy_share": 0.2, "window_s": 0.5, "wait_s": 5}}}}, True),
        ({"devices": {"a": {"idle_gate": {"window_s": 0}}}}, False),
        ({"devices": {"a": {"idle_gate": True}}}, False),
        ({"devices": {"a": {"host": "h", "scope": "systemd"}}}, True),
        ({"devices": {"a": {"host": "h", "scope": "always"}}}, False),
        ({"policy": {"retry": {"jitter": 0.5}, "breaker": {"give_up_after_s": "never"}}}, True),
        ({"devices": {}}, False),
        ({"devices": {"a": {"hots": "h"}}}, False),
        ({"matrix": []}, False),
        ({"matrix": {"threads": "many"}}, False),
        ({"matrix": {"thread": 1}}, False),
        ({"models": {"m": {"sha256": "12"}}}, False),
        ({"polcy": {}}, False),
    ],
)
def test_it_knows_keys_and_shapes(section: dict[str, Any], good: bool) -> None:
    assert valid({"devices": {"a": {}}, "matrix": {"devices": "a"}, **section}) is good


def test_the_readme_tells_every_key() -> None:
    text = (ROOT / "config/README.md").read_text()
    sections = [SCHEMA, *(SCHEMA["$defs"][name] for name in SCHEMA["$defs"])]
    keys = {key for section in sections for key in section.get("properties", {})}
    assert not {key for key in keys if f"`{key}`" not in text}
