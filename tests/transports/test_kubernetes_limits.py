"""Asked, granted, in force: when the limits of a pod are those of the config, and what is said when they are not."""

from __future__ import annotations

from typing import Any

import pytest

from sidewinder.model import Device
from sidewinder.transports.kubernetes_limits import sentence, ungranted, unlike_inside, why_other
from sidewinder.transports.kubernetes_spec import manifest


def device(**settings: Any) -> Device:
    return Device("k8s", "kubernetes", settings={"image": "python:3", **settings})


def there(pod: Device, **metadata: Any) -> dict[str, Any]:
    """The pod of a device as an API server that adds nothing has it."""
    found = manifest(pod, "me")
    found["metadata"].update(metadata)
    found["spec"]["nodeName"] = "node1"
    return found


def inside(**limits: Any) -> dict[str, Any]:
    return {"version": 1, "cpu_period_us": 100_000, **limits}


def keys(differences: list[Any]) -> list[str]:
    return [one.key for one in differences]


# -- inside


@pytest.mark.parametrize(
    ("cpu", "quota_us", "period_us", "is_same"),
    [
        ("500m", 50_000, 100_000, True),
        ("500m", 25_000, 100_000, False),
        ("500m", 5_000, 10_000, True),
        ("0.5", 50_000, 100_000, True),
        ("100m", 10_000, 100_000, True),
        ("100m", 10_001, 100_000, False),
        ("1m", 1_000, 100_000, True),  # the kubelet makes none smaller
        ("5m", 1_000, 100_000, True),
        ("5m", 1_000, 10_000, True),  # 50 us, were it not for that
        ("125m", 12_500, 100_000, True),
        ("125m", 13_000, 100_000, True),  # systemd's hundredths of a CPU, rounded up
        ("125m", 12_000, 100_000, False),
        ("125m", 14_000, 100_000, False),
        ("333m", 33_300, 100_000, True),
        ("333m", 332, 1_000, False),
        ("2500m", 250_000, 100_000, True),
        ("2", 200_000, 100_000, True),
        ("2", 400_000, 200_000, True),
    ],
)
def test_a_quota_is_that_share_of_whatever_period(cpu: str, quota_us: int, period_us: int, is_same: bool) -> None:
    found = unlike_inside({"version": 2, "cpu_quota_us": quota_us, "cpu_period_us": period_us}, device(cpu=cpu))
    assert keys(found) == ([] if is_same else ["cpu"])


@pytest.mark.parametrize(
    ("memory", "limit", "is_same"),
    [
        ("128Mi", 128 << 20, True),
        ("128Mi", 256 << 20, False),
        ("128M", 128_000_000 // 4096 * 4096, True),  # whole pages, rounded down
        ("128M", 128_000_000 // 65536 * 65536, True),
        ("128M", 128_000_000, True),
        ("128M", 128_000_000 - 1, False),
        ("128M", 128_004_096, False),
        ("1Gi", 1_000_000_000, False),
    ],
)
def test_a_memory_limit_is_that_many_whole_pages(memory: str, limit: int, is_same: bool) -> None:
    found = unlike_inside(inside(unlimited=["cpu"], memory_max_bytes=limit), device(memory=memory))
    assert keys(found) == ([] if is_same else ["memory"])


def test_no_limit_is_an_arm_too_and_a_limit_that_is_there_is_another() -> None:
    assert unlike_inside(inside(unlimited=["cpu", "memory"]), device()) == []
    found = unlike_inside(inside(cpu_quota_us=50_000, memory_max_bytes=1 << 27), device())
    assert keys(found) == ["cpu", "memory"]
    assert [str(one) for one in found] == [
        "cpu: asked is no limit, there is 0.5 CPUs (50000 us of every 100000 us)",
        "memory: asked is no limit, there is 134217728 bytes",
    ]


def test_a_limit_that_does_not_hold_is_a_difference() -> None:
    """As where the kubelet enforces no quotas at all."""
    assert keys(unlike_inside(inside(unlimited=["cpu", "memory"]), device(cpu="500m", memory="1Gi"))) == [
        "cpu",
        "memory",
    ]


@pytest.mark.parametrize(
    ("cpuset", "found"), [("2-3", []), ("0,4", []), ("1-1,5", []), ("0-3", ["cpu"]), ("x", ["cpu"]), (None, ["cpu"])]
)
def test_whole_cpus_of_its_own_need_no_quota(cpuset: str | None, found: list[str]) -> None:
    limits = inside(unlimited=["cpu"], **({"cpuset": cpuset} if cpuset else {}))
    assert keys(unlike_inside(limits, device(cpu="2"))) == found


@pytest.mark.parametrize("limits", [{}, {"version": 1}, {"version": 2, "cpuset": "0-1", "cpu_period_us": 100_000}])
def test_what_cannot_be_read_is_no_difference(limits: dict[str, Any]) -> None:
    assert unlike_inside(limits, device(cpu="500m", memory="1Gi")) == []
    assert unlike_inside(limits, device()) == []


def test_the_limits_of_a_template_are_asked_for_too() -> None:
    template = {"spec": {"containers": [{"name": "agent", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}}
    found = unlike_inside(
        inside(cpu_quota_us=50_000, memory_max_bytes=1 << 30), device(pod_template=template, cpu="500m")
    )
    assert found == []  # ours win
    of_pod = {"spec": {"resources": {"limits": {"cpu": "2"}}}}
    assert unlike_inside(inside(cpu_quota_us=200_000), device(pod_template=of_pod)) == []


def test_of_a_pod_that_was_there_only_what_is_named_is_asked() -> None:
    foreign = Device("k8s", "kubernetes", settings={"pod": "theirs", "cpu": "1"})
    assert unlike_inside(inside(cpu_quota_us=100_000, memory_max_bytes=1 << 27), foreign) == []
    assert keys(unlike_inside(inside(cpu_quota_us=50_000), foreign)) == ["cpu"]


# -- granted


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cpu": "500m", "memory": "128Mi"},
        {"cpu": "2", "cpu_request": "1"},
        {"cpu_request": "1", "memory": "1Gi"},
        {"resources": {"nvidia.com/gpu": "1"}, "ephemeral_storage": "1Gi"},
        {"pod_template": {"spec": {"containers": [{"name": "agent", "resources": {"requests": {"cpu": "100m"}}}]}}},
    ],
)
def test_a_pod_as_it_was_sent_is_the_one_that_was_asked_for(settings: dict[str, Any]) -> None:
    one = device(**settings)
    assert ungranted(there(one), one) == []


def test_another_spelling_is_the_same_amount() -> None:
    pod = there(device(cpu="0.5", memory="1024Mi"))
    assert ungranted(pod, device(cpu="500m", memory="1Gi")) == []


def test_what_a_limit_range_adds_is_named() -> None:
    one = device(cpu="500m")
    pod = there(
        one, annotations={"kubernetes.io/limit-ranger": "LimitRanger plugin set: memory limit for container agent"}
    )
    pod["spec"]["containers"][0]["resources"]["limits"]["memory"] = "256Mi"
    pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "256Mi"
    found = ungranted(pod, one)
    assert keys(found) == ["memory", "memory_request"]
    said = sentence(found, one, "device 'k8s' (pod sidewinder-k8s)", why_other(pod))
    assert said.startswith("device 'k8s' (pod sidewinder-k8s): the pod is not the device that the config describes: ")
    assert "devices.k8s.memory: asked is none, there is 256Mi" in said
    assert "(a LimitRange of its namespace did that: LimitRanger plugin set: memory limit for container agent)" in said
    assert said.endswith("sidewinder devices down k8s")


def test_requests_count_too_because_they_share_out_a_busy_node() -> None:
    one = device()
    pod = there(one)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    assert keys(ungranted(pod, one)) == ["cpu_request"]


def test_storage_that_a_cluster_adds_by_itself_is_let_go() -> None:
    one = device(cpu="1")
    pod = there(one)
    pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] = "1Gi"
    assert ungranted(pod, one) == []
    assert keys(ungranted(pod, device(cpu="1", ephemeral_storage="2Gi"))) == [
        "ephemeral_storage",
        "ephemeral_storage_request",
    ]


def test_fewer_gpus_are_another_device() -> None:
    pod = there(device(resources={"nvidia.com/gpu": "1"}))
    found = ungranted(pod, device(resources={"nvidia.com/gpu": "2"}))
    assert keys(found) == ["resources.nvidia.com/gpu"]


def test_a_resize_is_told_by_the_generation() -> None:
    one = device(cpu="500m")
    pod = there(one, generation=2)
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "250m"}, "requests": {"cpu": "500m"}}
    assert keys(ungranted(pod, one)) == ["cpu"]
    assert "generation 2" in why_other(pod)
    assert why_other(there(one, generation=1)) == ""


def test_another_node_than_the_pinned_one() -> None:
    one = device(node_name="node2")
    pod = there(one)
    assert [str(difference) for difference in ungranted(pod, one)] == ["node_name: asked is node2, there is node1"]
