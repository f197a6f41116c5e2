"""The pod that is asked for: what each setting becomes, what a template may add, what its digest depends on."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sidewinder.model import Device
from sidewinder.transports import kubernetes_spec as spec


def device(**settings: Any) -> Device:
    more = {name: settings.pop(name) for name in ("python", "id") if name in settings}
    return Device(**{"id": "k8s-cpu2", "kind": "kubernetes", "settings": {"image": "lab/b:1", **settings}, **more})


def made(**settings: Any) -> dict[str, Any]:
    return spec.manifest(device(**settings), "me@here")


def container(**settings: Any) -> dict[str, Any]:
    (found,) = made(**settings)["spec"]["containers"]
    return found


def digest(**settings: Any) -> str:
    return made(**settings)["metadata"]["annotations"][spec.SPEC_HASH]


def test_the_smallest_pod() -> None:
    pod = made()
    assert pod["metadata"]["name"] == "sidewinder-k8s-cpu2"
    assert pod["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "sidewinder"}
    assert pod["metadata"]["annotations"]["sidewinder/device"] == "k8s-cpu2"
    assert "namespace" not in pod["metadata"], "the context's, as long as none is given"
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["volumes"] == [{"name": "sidewinder-state", "emptyDir": {}}]
    (one,) = pod["spec"]["containers"]
    assert one["image"] == "lab/b:1"
    assert one["name"] == "agent"
    assert one["resources"] == {}, "no limit is legal: best effort"
    assert one["command"][0] == "python3"
    assert one["command"][-1] == "3600"


def test_requests_are_the_limits_unless_given() -> None:
    assert container(cpu="2", memory="2Gi", resources={"nvidia.com/gpu": "1"})["resources"] == {
        "limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"},
        "requests": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert container(cpu="2", cpu_request="1", ephemeral_storage="1Gi")["resources"] == {
        "limits": {"cpu": "2", "ephemeral-storage": "1Gi"},
        "requests": {"cpu": "1", "ephemeral-storage": "1Gi"},
    }
    assert container(cpu_request="500m")["resources"] == {"requests": {"cpu": "500m"}}


def test_each_setting_has_its_place() -> None:
    pod = made(
        python="/opt/py",
        pod="p",
        container="c",
        image_pull_policy="Never",
        image_pull_secrets=["reg"],
        service_account="lab",
        runtime_class="kata",
        priority_class="high",
        node_selector={"disk": "ssd"},
        tolerations=[{"key": "lab", "operator": "Exists", "toleration_seconds": 3}],
        env_from_secrets={"TOKEN": "hf/token"},
        idle_timeout_s="never",
        workdir="/data/runs",
    )
    (one,) = pod["spec"].pop("containers")
    assert one["command"][0] == "/opt/py"
    assert one["command"][-1] == "0"
    assert (one["name"], one["imagePullPolicy"]) == ("c", "Never")
    assert one["env"] == [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]
    assert one["volumeMounts"] == [{"name": "sidewinder-state", "mountPath": "/data/runs"}]
    assert pod["metadata"]["name"] == "p"
    assert pod["spec"] | {"volumes": []} == {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 5,
        "enableServiceLinks": False,
        "volumes": [],
        "imagePullSecrets": [{"name": "reg"}],
        "serviceAccountName": "lab",
        "runtimeClassName": "kata",
        "priorityClassName": "high",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "lab", "operator": "Exists", "tolerationSeconds": 3}],
    }


def test_volumes_of_both_spellings() -> None:
    w = {"host_path": "/w", "mount_path": "/w", "name": "w", "read_only": False, "type": "File"}
    pod = made(
        host_mounts=[{"host_path": "/m", "mount_path": "/models"}, w],
        volumes=[
            {"mount_path": "/a", "host_path": "/srv/a"},
            {"mount_path": "/b", "pvc": "claim", "sub_path": "x", "read_only": True},
            {"mount_path": "/c", "config_map": "cm"},
            {"mount_path": "/d", "empty_dir": {"medium": "Memory", "size_limit": "1Gi"}},
            {"mount_path": "/e", "empty_dir": {}},
        ],
    )
    names = ["sidewinder-host-0", "w", *(f"sidewinder-volume-{n}" for n in range(5)), "sidewinder-state"]
    assert [one.pop("name") for one in pod["spec"]["volumes"]] == names
    assert pod["spec"]["volumes"] == [
        {"hostPath": {"path": "/m", "type": "Directory"}},
        {"hostPath": {"path": "/w", "type": "File"}},
        {"hostPath": {"path": "/srv/a"}},
        {"persistentVolumeClaim": {"claimName": "claim"}},
        {"configMap": {"name": "cm"}},
        {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"emptyDir": {}},
        {"emptyDir": {}},
    ]
    mounts = pod["spec"]["containers"][0]["volumeMounts"]
    assert [one.pop("name") for one in mounts] == names
    assert mounts[:2] == [{"mountPath": "/models", "readOnly": True}, {"mountPath": "/w"}]
    assert mounts[3] == {"mountPath": "/b", "readOnly": True, "subPath": "x"}


@pytest.mark.parametrize(
    ("workdir", "own"),
    [("/data/runs", True), ("/data/x", False), ("/data/x/y", False), ("/data/xy", True), (None, True)],
)
def test_the_state_has_a_volume_of_its_own_unless_it_lies_on_one(workdir: str | None, own: bool) -> None:
    pod = made(workdir=workdir, volumes=[{"mount_path": "/data/x/", "pvc": "p"}])
    assert ("sidewinder-state" in [one["name"] for one in pod["spec"]["volumes"]]) is own


def test_a_pin_goes_by_way_of_the_scheduler() -> None:
    pinned = made(node_name="n1")["spec"]
    assert "nodeName" not in pinned
    (term,) = pinned["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ssd, nvme = ({"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in ("ssd", "nvme"))
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [ssd, nvme]}}}
    before = copy.deepcopy(wanted)
    both = made(node_name="n1", affinity=wanted)["spec"]["affinity"]["nodeAffinity"]
    terms = both["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [ssd | term, nvme | term], "either of them, and that node"
    assert wanted == before, "the settings of a device are nobody's to change"


def test_a_template_adds_and_ours_wins() -> None:
    template = {
        "metadata": {"name": "theirs", "labels": {"team": "a"}, "annotations": {"x": "y", spec.SPEC_HASH: "forged"}},
        "spec": {
            "restartPolicy": "Always",
            "hostNetwork": True,
            "securityContext": {"runAsUser": 1000},
            "tolerations": [{"key": "one"}],
            "containers": [
                {"name": "sidecar", "image": "s"},
                {
                    "name": "agent",
                    "image": "theirs",
                    "command": ["sleep", "inf"],
                    "securityContext": {"readOnlyRootFilesystem": True},
                    "volumeMounts": [
                        {"name": "v", "mountPath": "/v"},
                        {"name": "v", "mountPath": "/sidewinder", "subPath": "s"},
                    ],
                },
            ],
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }
    before = copy.deepcopy(template)
    pod = made(pod_template=template, tolerations=[{"key": "two"}])
    assert template == before
    assert pod["metadata"]["name"] == "sidewinder-k8s-cpu2"
    assert pod["metadata"]["labels"] == {"team": "a", "app.kubernetes.io/managed-by": "sidewinder"}
    assert pod["metadata"]["annotations"]["x"] == "y"
    assert pod["metadata"]["annotations"][spec.SPEC_HASH] != "forged"
    assert (pod["spec"]["hostNetwork"], pod["spec"]["restartPolicy"]) == (True, "OnFailure")
    assert [one["key"] for one in pod["spec"]["tolerations"]] == ["one", "two"]
    sidecar, agent = pod["spec"]["containers"]
    assert sidecar["name"] == "sidecar"
    assert (agent["image"], agent["command"][0]) == ("lab/b:1", "python3")
    assert agent["securityContext"] == {"readOnlyRootFilesystem": True}
    assert agent["volumeMounts"] == [
        {"name": "v", "mountPath": "/v"},
        {"name": "sidewinder-state", "mountPath": "/sidewinder"},
    ]
    assert [one["name"] for one in pod["spec"]["volumes"]] == ["v", "sidewinder-state"]


def test_the_digest_says_what_the_pod_is() -> None:
    assert digest() == digest()
    assert digest(cpu="2") != digest() != digest(pod_template={"metadata": {"labels": {"a": "b"}}})
    assert digest(ready_timeout_s=1) == digest(context="other") == digest(), "how it is reached is not what it is"
    mine, hers = (spec.manifest(device(), owner) for owner in ("me@here", "her@there"))
    assert mine["metadata"]["annotations"][spec.OWNER] == "me@here"
    assert mine["metadata"]["annotations"][spec.SPEC_HASH] == hers["metadata"]["annotations"][spec.SPEC_HASH]
