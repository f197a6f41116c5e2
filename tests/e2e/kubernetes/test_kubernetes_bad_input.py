"""What a person can get wrong about a pod that only the cluster can tell: one sweep over all of it.

Points of such a device say which one it is, what was seen and what to do. What looks wrong and is not is measured, and
so are the other devices. What the config alone shows is refused before anything runs: tests/e2e/test_bad_input.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_badluck import QUICK_RETRY, Holed, assert_holes_say, assert_said, of_device
from e2e.kubernetes.helpers_accounts import account, with_user
from e2e.kubernetes.helpers_certificates import expired_client
from e2e.kubernetes.helpers_cluster import Namespace, TestCluster, until
from plugin.helpers_plugin import LabFolder, Run, Snakemake
from sidewinder.transports.kubernetes_access import RIGHTS, lines, rules

NOT_EXEC = [right for right in RIGHTS if not right.everywhere and right.resource != "pods/exec"]
EXEC = [right for right in RIGHTS if right.resource == "pods/exec"]


HOLED = {
    "no-kubeconfig": Holed("config", ("/no/such/kubeconfig", "devices.no-kubeconfig.kubeconfig")),
    "wrong-context": Holed("config", ("nowhere", "devices.wrong-context.context")),
    "expired": Holed("device", ("certificate", "expired on", "log in again")),
    "no-namespace": Holed("device", ("sidewinder-test-nobody-made-it", "devices.no-namespace.namespace")),
    "no-exec": Holed("device", ("lacks the right to get pods/exec, create pods/exec", lines(EXEC), "devices role")),
    "no-python": Holed("device", ("python3", "devices.no-python.python")),
    "full": Holed("device", ("/full", "No space left", "devices.full.workdir")),
    "no-permission": Holed("device", ("/sidewinder", "Permission denied", "devices.no-permission.workdir")),
    "stranger": Holed("device", ("theirs", "Sidewinder did not make", "devices.stranger.pod")),
}
MEASURED = ("read-only", "non-root", "good", "local")


def template(spec: dict[str, Any] | None = None, **agent: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "agent", **agent}], **(spec or {})}}


def devices(namespace: Namespace, folder: Path) -> dict[str, Any]:
    good = {"kind": "kubernetes", **namespace.device(cpu="100m", memory="64Mi").settings}
    full = {"name": "fill", "image": good["image"], "imagePullPolicy": good["image_pull_policy"]}
    full["command"] = ["sh", "-c", "cat /dev/zero > /full/ballast; true"]
    full["volumeMounts"] = [{"name": "sidewinder-volume-0", "mountPath": "/full"}]
    there = {key: good[key] for key in ("kind", "kubeconfig", "namespace")}
    return {
        "no-kubeconfig": {**good, "kubeconfig": "/no/such/kubeconfig"},
        "wrong-context": {**good, "context": "nowhere"},
        "expired": {**good, "kubeconfig": with_user(namespace, expired_client(namespace), folder / "expired")},
        "no-namespace": {**good, "namespace": "sidewinder-test-nobody-made-it"},
        "no-exec": {**good, "kubeconfig": account(namespace, "no-exec", rules(NOT_EXEC), folder)},
        "no-python": {**good, "image": namespace.cluster.bare_image},
        "full": {
            **good,
            "workdir": "/full",
            "volumes": [{"mount_path": "/full", "empty_dir": {"medium": "Memory", "size_limit": "1Mi"}}],
            "pod_template": template({"initContainers": [full]}),
        },
        "no-permission": {**there, "pod": "plain", "container": "c"},
        "stranger": {**good, "pod": "theirs"},
        "read-only": {**good, "pod_template": template(securityContext={"readOnlyRootFilesystem": True})},
        "non-root": {
            **good,
            "pod_template": template(
                {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}}
            ),
        },
        "good": good,
        "local": {},
    }


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory, snakemake: Snakemake, test_cluster: TestCluster
) -> Iterator[tuple[LabFolder, Run]]:
    folder = tmp_path_factory.mktemp("bad_pods")
    with test_cluster.namespace() as namespace:
        namespace.make_pod("theirs")
        namespace.make_pod("plain", securityContext={"runAsUser": 1000})
        ready = [{"type": "Ready", "status": "True"}]
        until(
            lambda: any(one.items() >= ready[0].items() for one in namespace.pod("plain")["status"]["conditions"]),
            "the pod that is there runs",
        )
        lab = devices(namespace, folder)
        code = "import os; print('value=%d' % os.getuid())"
        block = {"backend": "command", "devices": list(lab), "command": ["python3", "-c", code]}
        matrix = [{**block, "metrics": {"value": r"value=(\S+)"}, "parameters": {"i": [1, 2]}}]
        config = {"experiment": "demo", "devices": lab, "matrix": matrix, "policy": QUICK_RETRY}
        one = LabFolder(snakemake, folder / "lab", config)
        (folder / "me").mkdir()
        yield one, one.run("--logger", "sidewinder", env={"HOME": str(folder / "me")})


def of(swept: tuple[LabFolder, Run], device: str) -> list[dict[str, Any]]:
    return of_device(swept[0].folder / "runs/demo", device)


@pytest.mark.parametrize("device", HOLED)
def test_its_points_say_what_to_do(device: str, swept: tuple[LabFolder, Run]) -> None:
    assert_said(of(swept, device), device, HOLED[device])


@pytest.mark.parametrize("device", MEASURED)
def test_the_others_are_measured(device: str, swept: tuple[LabFolder, Run]) -> None:
    found = of(swept, device)
    assert [record["status"] for record in found] == ["ok", "ok"], [record.get("failure") for record in found]
    assert all(len(record["attempts"]) == 1 for record in found)
    if device == "non-root":
        assert {record["metrics"]["value"] for record in found} == {1000}


def test_the_display_names_each_device_and_the_run_ends_honestly(swept: tuple[LabFolder, Run]) -> None:
    _, run = swept
    total = 2 * (len(HOLED) + len(MEASURED))
    assert run.rc == 1
    assert f"{2 * len(HOLED)} of {total} points are open" in run.text
    assert "Traceback" not in run.text
    for device in HOLED:
        assert re.search(rf"^\[ *\d+/{total}\] (?:HOLE )?{device} ", run.text, re.M)


def test_the_report_has_each_reason(swept: tuple[LabFolder, Run]) -> None:
    assert_holes_say(swept[0].folder / "runs/demo", HOLED)
