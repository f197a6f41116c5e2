"""Devices that turn out to be one machine: who is told of, and who takes turns anyway."""

from __future__ import annotations

from typing import Any

import pytest

from sidewinder.machines import one_machine, sentence, turn_groups
from sidewinder.model import Device


def ssh(name: str, host: str, **more: Any) -> Device:
    return Device(name, "ssh", settings={"host": host}, **more)


def test_devices_that_take_turns() -> None:
    groups = turn_groups(
        [
            Device("local", "local"),
            Device("again", "local", resource_group="bench"),
            ssh("beside", "here.lan", resource_group="bench"),
            ssh("pi5", "pi5.lan"),
            ssh("pi5-again", "pi5.lan"),
            ssh("pi5-gpu", "pi5.lan", lock="gpu"),
            ssh("a", "a.lan", resource_group="rack"),
            ssh("b", "b.lan", resource_group="rack"),
        ]
    )
    assert groups["local"] == groups["again"] == groups["beside"]
    assert groups["pi5"] == groups["pi5-again"] != groups["pi5-gpu"]
    assert groups["a"] == groups["b"]


@pytest.mark.parametrize(
    ("groups", "boots", "sets"),
    [
        ({"a": "1", "b": "2"}, {"a": ["x"], "b": ["x"]}, [("a", "b")]),
        ({"a": "1", "b": "1"}, {"a": ["x"], "b": ["x"]}, []),
        ({"a": "1", "b": "2"}, {"a": ["x"], "b": ["y"]}, []),
        ({"a": "1", "b": "2"}, {"a": ["x"]}, []),
        ({"a": "1", "b": "2"}, {}, []),
        ({"a": "1", "b": "1", "c": "2"}, {"a": ["x"], "b": ["x"], "c": ["x"]}, [("a", "b", "c")]),
        (
            {"a": "1", "b": "2", "c": "3", "d": "4"},
            {"a": ["x"], "b": ["x"], "c": ["y"], "d": ["y"]},
            [("a", "b"), ("c", "d")],
        ),
        ({"a": "1", "b": "2"}, {"a": ["x", "y"], "b": ["x", "y"]}, [("a", "b")]),  # both were started anew
        ({"a": "1", "b": "2", "c": "3"}, {"a": ["x", "y"], "b": ["x", "y"], "c": ["y"]}, [("a", "b", "c")]),
    ],
)
def test_sets(groups: dict[str, str], boots: dict[str, list[str]], sets: list[tuple[str, ...]]) -> None:
    assert one_machine(groups, boots) == sets


def test_the_sentence_names_them_and_says_what_to_do() -> None:
    text = sentence(("pi5", "pi5-again"))
    assert text.startswith("SAME MACHINE: pi5 and pi5-again show one boot id")
    assert "same machine, or share its kernel" in text
    assert "resource_group" in text
    many = sentence(tuple(f"d{i}" for i in range(50)))
    assert "d7 and 42 more show" in many
    assert "d8" not in many
