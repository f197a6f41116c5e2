"""Devices that turn out to be one machine: who is told of, and who takes turns anyway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sidewinder import config
from sidewinder.machines import boots_of, node_of, one_machine, sentence, turn_groups
from sidewinder.model import Device


def ssh(name: str, host: str, **more: Any) -> Device:
    return Device(name, "ssh", settings={"host": host}, **more)


def pod(name: str, **more: Any) -> Device:
    settings = {"image": "i", "node_selector": {"disk": "fast"}, **more.pop("settings", {})}
    return Device(name, "kubernetes", settings=settings, **more)


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


def test_turns_are_taken_across_kinds_and_pods_of_one_selector_do_not_take_them_unasked() -> None:
    """A selector that many nodes match says nothing; two that are on one node are told of when they are."""
    groups = turn_groups(
        [
            ssh("host", "node1.lan", resource_group="silicon"),
            pod("k8s-free", resource_group="silicon"),
            pod("k8s-cpu4", resource_group="silicon"),
            pod("a"),
            pod("b"),
            pod("beside", resource_group="here"),
            Device("local", "local", resource_group="here"),
        ]
    )
    assert groups["host"] == groups["k8s-free"] == groups["k8s-cpu4"]
    assert len({groups["a"], groups["b"], groups["host"], groups["local"]}) == 4
    assert groups["beside"] == groups["local"]


POD = {"boot_id": "x", "pod": {"node": "node1", "node_info": {"boot_id": "y"}}}


@pytest.mark.parametrize(
    ("facts", "boots", "node"),
    [
        ({"boot_id": "x"}, {"x"}, None),
        ({}, set(), None),
        (POD, {"x", "y"}, "node1"),  # a sandboxed container has a kernel of its own: its node says which machine it is
        ({"boot_id": "x", "pod": {"node": "node1"}}, {"x"}, "node1"),  # this account may not look at nodes
        ({"boot_id": None, "pod": "odd"}, set(), None),
    ],
)
def test_what_gives_a_machine_away(facts: dict[str, Any], boots: set[str], node: str | None) -> None:
    assert boots_of(facts) == boots
    assert node_of(facts) == node


def test_pods_are_named_with_their_node() -> None:
    one = sentence(("host", "k8s-free", "k8s-cpu4"), {"k8s-free": "node1", "k8s-cpu4": "node1", "host": ""})
    assert "host, k8s-free (a pod on node1) and k8s-cpu4 (a pod on node1) show one boot id" in one
    assert "they share the machine of node1, and they do not all take turns" in one
    many = sentence(("local", "a", "b"), {"a": "kind-worker", "b": "kind-worker2"})
    assert "they share one machine, of which kind-worker and kind-worker2 are nodes (as with kind or minikube)" in many


def test_the_labs_of_docs_and_example_take_turns_as_they_say() -> None:
    project = Path(__file__).parents[1]
    section = (
        (project / "docs/kubernetes.md").read_text().partition("## Groups and failover\n")[2].partition("\n## ")[0]
    )
    lab = yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])
    block = {"devices": list(lab["devices"]), "backend": "command", "command": ["true"]}
    docs = config.load({"experiment": "e", **lab, "matrix": [block]}).lab.devices
    example = config.load_files([str(project / "config/examples/three-kinds.yaml")]).lab.devices
    for devices in (docs, example):
        groups = turn_groups(devices.values())
        assert groups["host"] == groups["k8s-unlimited"] == groups["k8s-cpu4"]
        assert len({groups["host"], groups["k8s-a"], groups["pi5"]}) == 3
        assert "k8s-a" in devices["pi5"].failover_to
        assert {docs[name].kind for name in ("host", "k8s-a", "pi5")} == {"ssh", "kubernetes"}
    assert turn_groups(example.values())["k8s-a"] == turn_groups(example.values())["k8s-b"]
    assert example["k8s-a"].group_max_concurrency == 2
