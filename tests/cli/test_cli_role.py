"""`sidewinder devices role`: what it prints, and that docs and the manifest in `config/` are that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidewinder import cli
from sidewinder.transports import kubernetes_access, kubernetes_role

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(tmp_path)

    def printed(*words: str) -> tuple[str, str]:
        assert cli.main(["devices", "role", *words]) == 0
        out, err = capsys.readouterr()
        return out, err

    return printed


def manifests(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def test_the_manifest_in_config_and_that_of_the_docs_are_what_is_printed(printed: Any) -> None:
    """Made anew by: sidewinder devices role > config/kubernetes-role.yaml (in a folder without a lab)."""
    text, said = printed()
    assert (PROJECT / "config/kubernetes-role.yaml").read_text() == text
    blocks = (PROJECT / "docs/kubernetes.md").read_text().split("```yaml\n")[1:]
    assert text in [block.partition("```")[0] for block in blocks]
    assert "nobody's yet" in said


def test_every_right_is_in_it_once(printed: Any) -> None:
    rules = [rule for one in manifests(printed("--nodes")[0]) for rule in one["rules"]]
    given = [(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]]
    assert sorted(given) == sorted((right.verb, right.resource) for right in kubernetes_access.RIGHTS)
    assert manifests(printed("--nodes")[0])[1]["kind"] == "ClusterRole"


def test_the_namespaces_are_those_of_the_lab_unless_others_are_named(printed: Any, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    devices = {
        "a": {"image": "i", "namespace": "one"},
        "b": {"image": "i", "namespace": "two"},
        "c": {"image": "i", "namespace": "one"},
        "local": {},
    }
    lab = {"devices": devices, "matrix": [{"devices": ["a"], "backend": "command", "command": ["true"]}]}
    (tmp_path / "config/lab.yaml").write_text(yaml.safe_dump(lab))
    assert [one["metadata"]["namespace"] for one in manifests(printed()[0])] == ["one", "two"]
    assert [one["metadata"]["namespace"] for one in manifests(printed("--namespace", "x")[0])] == ["x"]
    listed = json.loads(printed("--namespace", "x", "--json")[0])
    assert (listed["kind"], listed["items"]) == ("List", manifests(printed("--namespace", "x")[0]))


def test_whom_it_binds(printed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A binding has a name of its own for each: a second person's does not replace the first one's."""
    who = ["--user", "a@b.example", "--user", "system:serviceaccount:lab:bot", "--group", "team/x"]
    text, said = printed("--namespace", "lab", *who, "--serviceaccount", "here", "--serviceaccount", "there:it")
    assert not said
    bindings = [one for one in manifests(text) if one["kind"] == "RoleBinding"]
    subjects = [{key: one["subjects"][0].get(key) for key in ("kind", "name", "namespace")} for one in bindings]
    assert [tuple(one.values()) for one in subjects] == [
        ("User", "a@b.example", None),
        ("ServiceAccount", "bot", "lab"),
        ("Group", "team/x", None),
        ("ServiceAccount", "here", "lab"),
        ("ServiceAccount", "it", "there"),
    ]
    names = [one["metadata"]["name"] for one in bindings]
    assert len(set(names)) == 5
    assert not any(sign in name for name in names for sign in "/%")
    assert all(one["roleRef"]["name"] == kubernetes_role.NAME for one in bindings)
    assert cli.main(["devices", "role", "--serviceaccount", "x"]) == 2
    assert "NAMESPACE:x" in capsys.readouterr().err


def test_the_command_that_a_person_is_told_is_one_line_for_a_shell() -> None:
    told = kubernetes_access.grant_command("lab", "o'neil $HOME")
    assert told.startswith("sidewinder devices role --namespace lab --user 'o'\"'\"'neil $HOME' | kubectl apply")
    assert kubernetes_access.lacks([], "lab", None, is_all=False) == ""
    said = kubernetes_access.lacks(kubernetes_access.RIGHTS[:1], "lab", None, is_all=True)
    assert "is that the namespace that is meant?" in said
    assert "--user NAME" in said
