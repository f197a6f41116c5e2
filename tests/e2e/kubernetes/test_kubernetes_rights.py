"""What an account must be allowed to do, on a real cluster: each right taken away in turn; the Role that has all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.helpers_accounts import account, allowed, bound_account
from e2e.kubernetes.helpers_cluster import PROJECT, Namespace
from e2e.kubernetes.helpers_pods import connect, refused
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command
from sidewinder import cli
from sidewinder.errors import DeviceFault
from sidewinder.model import Device
from sidewinder.transports.kubernetes_access import RIGHTS, Right, lines, rules
from sidewinder.transports.kubernetes_cluster import Cluster

LOCAL = [right for right in RIGHTS if not right.everywhere]
NEEDED = [right for right in LOCAL if right.is_needed]
# without `delete` nothing is amiss until a pod must be replaced
AT_ONCE = [right for right in NEEDED if right.verb != "delete"]


class Doctor:
    """``sidewinder doctor`` about one device."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys

    def __call__(self, device: Device) -> tuple[int, list[dict[str, str]]]:
        lab = {
            "output_dir": str(self.folder / "runs"),
            "devices": {device.id: {"kind": "kubernetes", **device.settings}},
            "matrix": [{"devices": [device.id], "backend": "command", "command": ["true"]}],
        }
        path = self.folder / "lab.yaml"
        path.write_text(yaml.safe_dump(lab))
        self.capsys.readouterr()
        code = cli.main(["doctor", "--configfile", str(path), "--json"])
        told = json.loads(self.capsys.readouterr().out)
        return code, [finding for finding in told["findings"] if finding["where"] == device.id]


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    return Doctor(tmp_path, capsys)


@pytest.mark.parametrize("gone", LOCAL, ids=str)
def test_the_right_that_is_missing_is_named_alone(
    gone: Right, namespace: Namespace, tmp_path: Path, doctor: Doctor
) -> None:
    rest = rules(right for right in LOCAL if right != gone)
    device = namespace.device(kubeconfig=account(namespace, "lab", rest, tmp_path))
    code, findings = doctor(device)
    missing = [one for one in findings if one["verdict"] != "ok" and one["what"].startswith("right to ")]
    assert [one["what"] for one in missing] == [f"right to {gone}"]
    assert missing[0]["verdict"] == ("fail" if gone.is_needed else "warn")
    assert lines([gone]) in missing[0]["text"], "the line of the Role to add"
    (whole,) = [one["text"] for one in findings if one["what"] == "rights"]
    assert f"--namespace {namespace.name} --user system:serviceaccount:{namespace.name}:lab" in whole
    assert code == (1 if gone.is_needed else 0)
    assert any(one["what"] == "agent" for one in findings) is not gone.is_needed, "without the others it works"
    if gone.is_needed:
        assert namespace.pod() is None, "nothing was made"


@pytest.mark.parametrize("gone", AT_ONCE, ids=str)
def test_it_is_truly_needed_and_a_refusal_names_it(gone: Right, namespace: Namespace, tmp_path: Path) -> None:
    rest = rules(right for right in LOCAL if right != gone)
    kubeconfig = account(namespace, "lab", rest, tmp_path)
    text = refused(namespace.device(kubeconfig=kubeconfig), DeviceFault)
    assert f"lacks the right to {gone} in namespace {namespace.name}. " in text
    assert lines([gone]) in text
    assert "sidewinder devices role --namespace" in text


def test_the_role_of_the_docs_is_enough(namespace: Namespace, tmp_path: Path) -> None:
    role = yaml.safe_load((PROJECT / "config/kubernetes-role.yaml").read_text())
    found = connect(namespace.device(kubeconfig=account(namespace, "lab", role["rules"], tmp_path)))
    assert found["node"]
    assert not {"node_info", "node_others"} & found.keys(), "that takes more"


def test_a_pod_that_is_there_takes_fewer_rights(namespace: Namespace, tmp_path: Path, doctor: Doctor) -> None:
    namespace.make_pod("mine")
    few = rules(right for right in LOCAL if not right.makes)
    device = namespace.device(
        kubeconfig=account(namespace, "lab", few, tmp_path),
        pod="mine",
        container="c",
        workdir="/tmp/s",
        **dict.fromkeys(("image", "image_pull_policy", "cpu", "memory")),
    )
    code, findings = doctor(device)
    assert code == 0, findings
    assert not [one for one in findings if one["verdict"] in ("warn", "fail") and one["what"].startswith("right")]


def test_what_devices_role_prints_can_be_applied_as_it_is(
    namespace: Namespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each manifest is sent as kubectl sends it, and the account that it names may do all of it, there alone."""
    who = ["--serviceaccount", f"{namespace.name}:bench"]
    assert cli.main(["devices", "role", "--namespace", namespace.name, *who]) == 0
    role, binding = yaml.safe_load_all(capsys.readouterr().out)
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace.name}"
    role["rules"] += [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]  # by which it is waited for
    namespace.api("POST", f"{rbac}/roles", role)
    namespace.api("POST", f"{rbac}/rolebindings", binding)
    kubeconfig = bound_account(namespace, "bench", tmp_path)
    answers: dict[str, Any] = {str(right): allowed(kubeconfig, right, namespace.name) for right in RIGHTS}
    assert answers == {str(right): not right.everywhere for right in RIGHTS}
    assert not any(allowed(kubeconfig, right, "default") for right in LOCAL)


def asked_for(method: str, path: str) -> str | None:
    """The right that a request takes, as the API server reads it; None: every account has that one."""
    parts = path.removeprefix("/api/v1/").split("/")
    if parts == ["pods"]:
        return "list pods in all namespaces"
    if path.startswith(("/apis/authentication", "/apis/authorization")) or path == "/version":
        return None
    if path.startswith("/apis/"):
        parts = path.removeprefix("/apis/").split("/")[2:]
    if parts[0] == "namespaces":
        parts = parts[2:]
    resource = "/".join([parts[0], *parts[2:]])
    verbs = {"GET": "get" if len(parts) > 1 else "list", "POST": "create", "DELETE": "delete", "PATCH": "patch"}
    return f"{verbs.get(method, method)} {resource}"


def test_nothing_is_asked_of_the_api_server_that_is_not_in_the_list(
    namespace: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, doctor: Doctor, begin: Begin
) -> None:
    """A sweep and every command about pods; what fails quietly where it is not allowed is seen here, too."""
    asked: set[str | None] = set()
    request, watch, stream = Cluster._request, Cluster.watch, Cluster.stream

    async def seen_request(self: Cluster, api: Any, method: str, path: str, *rest: Any, **more: Any) -> Any:
        asked.add(asked_for(method, path))
        return await request(self, api, method, path, *rest, **more)

    def seen_watch(self: Cluster, path: str, *rest: Any, **more: Any) -> Any:
        asked.add("watch " + path.rpartition("/")[2])
        return watch(self, path, *rest, **more)

    async def seen_stream(self: Cluster, path: str, *rest: Any, **more: Any) -> Any:
        asked.update({asked_for("GET", path), asked_for("POST", path)})
        return await stream(self, path, *rest, **more)

    device = namespace.device()
    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "_request", seen_request)
        patched.setattr(Cluster, "watch", seen_watch)
        patched.setattr(Cluster, "stream", seen_stream)
        assert doctor(device)[0] == 0
        for action in ("down", "up"):
            assert cli.main(["devices", action, "--configfile", str(tmp_path / "lab.yaml")]) == 0
        sweep = begin([command("true", device="k8s")], device)
        assert list(sweep.wait().values()) == ["ok"]
        assert cli.main(["devices", "clean", "--configfile", str(tmp_path / "lab.yaml")]) == 0
        with pytest.raises(DeviceFault):  # events are asked for where a pod does not start
            connect(namespace.device(env_from_secrets={"T": "nope/key"}))
    assert asked - {None} == {str(right) for right in RIGHTS}
