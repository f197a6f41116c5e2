"""A pod that cannot be had, on a real cluster: each reason with its class, at once or after a wait that says why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_accounts import account, with_token
from e2e.kubernetes.helpers_cluster import Namespace, TestCluster, until
from e2e.kubernetes.helpers_pods import READY_S, connect, connected, refused
from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.transports import kubernetes_verdict


def template(**agent: Any) -> dict[str, Any]:
    """A pod template with something of its own for our container."""
    return {"spec": {"containers": [{"name": "agent", **agent}]}}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"image": "k8s.local/nothere:1", "image_pull_policy": "Never"},
            ["image cannot be had", "ErrImageNeverPull", ".image"],
        ),
        ({"env_from_secrets": {"T": "nope/key"}}, ["CreateContainerConfigError", '"nope"']),
        ({"python": "/no/such/python"}, ["first process", "/no/such/python", ".python"]),
        ({"pod_template": template(volumeMounts=[{"name": "v", "mountPath": "v"}])}, ["refuses", "volumeMounts"]),
    ],
    ids=["image", "reference", "command", "invalid"],
)
def test_what_waiting_cannot_mend_fails_at_once(
    settings: dict[str, Any], words: list[str], namespace: Namespace
) -> None:
    text = refused(namespace.device(**settings), DeviceFault)
    for word in words:
        assert word in text
    until(lambda: namespace.pod() is None, "a pod that never starts gives its place back")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cpu": "999"}, "Insufficient cpu"),
        ({"node_name": "no-such-node"}, "Unschedulable"),
        ({"volumes": [{"mount_path": "/v", "config_map": "nope"}]}, 'configmap "nope" not found'),
        ({"pod_template": template(readinessProbe={"exec": {"command": ["false"]}})}, "ContainersNotReady"),
    ],
    ids=["full", "pinned", "volume", "not-ready"],
)
def test_what_waiting_may_mend_is_waited_for_and_says_why(
    settings: dict[str, Any], words: str, namespace: Namespace
) -> None:
    said: list[str] = []
    text = refused(namespace.device(ready_timeout_s=READY_S, **settings), TransportError, said)
    assert words in text
    assert f"not ready within {READY_S:g} s" in text
    assert any(words in one for one in said), "it was said meanwhile, too"
    until(lambda: namespace.pod() is None, "a pod that never starts gives its place back")


def test_a_quota_that_is_used_up_is_waited_for(namespace: Namespace) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"limits.cpu": "600m"}}}
    namespace.api("POST", f"{namespace.path}/resourcequotas", quota)
    until(lambda: (namespace.api("GET", f"{namespace.path}/resourcequotas/q")["status"] or {}).get("used"), "it counts")
    connect(namespace.device())
    said: list[str] = []
    other = namespace.device("other", ready_timeout_s=READY_S)
    assert "exceeded quota: q" in refused(other, TransportError, said)

    async def body() -> None:
        async def free() -> None:
            await asyncio.to_thread(until, lambda: any("exceeded quota" in one for one in said), "it waits")
            await asyncio.to_thread(namespace.delete_pod)

        said.clear()
        freeing = asyncio.create_task(free())
        async with connected(namespace.device("other"), said):
            await freeing

    asyncio.run(body())


def test_a_policy_of_the_cluster_that_refuses_the_pod(test_cluster: TestCluster) -> None:
    with test_cluster.namespace(**{"pod-security.kubernetes.io__enforce": "restricted"}) as namespace:
        text = refused(namespace.device(), DeviceFault)
    assert "the cluster refuses such a pod" in text
    assert "PodSecurity" in text


def test_an_image_without_python(namespace: Namespace, test_cluster: TestCluster) -> None:
    text = refused(namespace.device(image=test_cluster.bare_image), DeviceFault)
    assert "python3" in text
    assert "devices.k8s.python" in text
    namespace.make_pod("bare")
    device = namespace.device(image=None, pod="bare", container="c", python="python9", cpu=None, memory=None)
    assert "python9 is not there" in refused(device, DeviceFault)


def test_a_container_that_does_not_stay_up(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_verdict, "_CRASHES", 1)
    text = ""
    for _ in range(10):  # until the cluster has seen enough of it; before that it is there one moment, and not the next
        try:
            connect(namespace.device(python="false"))
        except TransportError:
            continue
        except DeviceFault as error:
            text = str(error)
            break
    assert "ends again and again" in text
    assert "exit code 1" in text


def test_an_account_that_may_too_little(namespace: Namespace, tmp_path: Path) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]}]
    text = refused(namespace.device(kubeconfig=account(namespace, "no-exec", rules, tmp_path)), DeviceFault)
    assert "forbidden" in text
    assert "lacks the right to get pods/exec, create pods/exec in namespace" in text
    rules[0]["verbs"] = ["get"]
    text = refused(namespace.device("other", kubeconfig=account(namespace, "no-create", rules, tmp_path)), DeviceFault)
    assert "cannot create resource" in text
    assert "create pods, delete pods, get pods/exec" in text
    assert f"--user system:serviceaccount:{namespace.name}:no-create | kubectl apply" in text
    assert "log in again" in refused(
        namespace.device(kubeconfig=with_token(namespace, "gone", tmp_path / "bad")), DeviceFault
    )


def test_a_namespace_that_is_not_there(test_cluster: TestCluster, namespace: Namespace) -> None:
    text = refused(namespace.device(namespace="sidewinder-test-nobody-made-it"), DeviceFault)
    assert "devices.k8s.namespace" in text


@pytest.mark.parametrize(
    "change", [{"context": "no-such-context"}, {"kubeconfig": "/no/such/file"}], ids=["context", "file"]
)
def test_a_kubeconfig_that_does_not_fit(change: dict[str, Any], namespace: Namespace) -> None:
    ((key, value),) = change.items()
    with pytest.raises(ConfigError, match=rf"devices\.k8s\.{key}: .*{value}"):
        connect(namespace.device(**change))


def test_a_way_that_changes_arguments(namespace: Namespace) -> None:
    """As a wrapper in the place of Python may do it (M-86)."""
    wrapper = (
        "#!/usr/bin/env python3\nimport os, sys\n"
        "os.execvp('python3', ['python3', *(one.replace('$HOME', '/root') for one in sys.argv[1:])])\n"
    )
    namespace.make_pod("mine")
    device = namespace.device(image=None, pod="mine", container="c", workdir="/tmp/s", cpu=None, memory=None)
    put = f"import os; open('/tmp/py', 'w').write({wrapper!r}); os.chmod('/tmp/py', 0o755)"

    async def body() -> None:
        async with connected(device) as client:
            assert (await client.execute(["python3", "-c", put])).returncode == 0

    asyncio.run(body())
    assert "arguments are changed on the way" in refused(replace(device, python="/tmp/py"), DeviceFault)
