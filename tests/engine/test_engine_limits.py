"""The limits that a run lived under: what the core is told when they were changed, or were not those asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sidewinder.core.policy import classify
from sidewinder.engine.evidence import evidence_of, interruption_of
from sidewinder.model import Device, FailureClass, Output, RawResult

BEFORE = {"version": 1, "cpu_quota_us": 50_000, "cpu_period_us": 100_000, "cpu_quota_cores": 0.5, "cpuset": "0-3"}
SSH = Device("pi5", "ssh")
POD = Device("k8s", "kubernetes", settings={"image": "i", "cpu": "500m"})


def raw(placement: Any, **fields: Any) -> RawResult:
    nothing = Output(b"", b"", 0)
    device = {"pod": {"name": "sidewinder-k8s", "namespace": "lab"}}
    found = {"returncode": 0, "duration_s": 1.0, **fields}
    state = found.pop("state", "done")
    return RawResult(
        state, found.pop("returncode"), found.pop("duration_s"), nothing, nothing, evidence={"placement": placement},
        device=device, **found,
    )  # fmt: skip


def job(device: Device, *, is_measured: bool = True) -> Any:
    return SimpleNamespace(is_measured=is_measured, link=SimpleNamespace(device=device))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"cpu_quota_us": 25_000, "cpu_quota_cores": 0.25},
            "CPU quota in cores 0.5 -> 0.25",
        ),
        ({"cpu_quota_us": 25_000}, "CPU quota in us 50000 -> 25000"),  # a group above is the tighter one
        ({"memory_max_bytes": 128 << 20}, "memory limit none -> 128 MiB"),
        ({"cpuset": "0-1"}, "CPUs 0-3 -> 0-1"),
        ({"cpu_shares": 2}, "CPU shares none -> 2"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("device", [SSH, POD], ids=["ssh", "pod"])
def test_a_change_during_a_run_is_an_interruption_on_every_kind(
    device: Device, change: dict[str, Any], words: str
) -> None:
    looks = {"before": BEFORE, "after": {**BEFORE, **change}}
    told = evidence_of(raw(looks), job(device))
    assert classify(told) is FailureClass.PREEMPTED
    assert told.limits_changed == f"the limits of its control group were changed during the run ({words})"
    assert interruption_of(raw(looks)) == {"limits": looks, "duration_s": 1.0}


def test_one_that_was_changed_back_is_one_too() -> None:
    looks = {"before": BEFORE, "during": {**BEFORE, "cpuset": "0-1"}}
    told = evidence_of(raw(looks), job(SSH))
    assert classify(told) is FailureClass.PREEMPTED
    assert "were changed and changed back during it (CPUs 0-3 -> 0-1)" in str(told.limits_changed)


@pytest.mark.parametrize(
    "looks",
    [None, {}, {"before": BEFORE}, {"before": BEFORE, "after": {}}, {"before": {}, "after": BEFORE}],
    ids=["none", "empty", "the same", "gone in the end", "none in the beginning"],
)
def test_what_is_not_known_is_no_change(looks: Any) -> None:
    told = evidence_of(raw(looks), job(POD))
    assert (classify(told), told.limits_changed, told.wrong_spec) == (None, None, None)
    assert interruption_of(raw(looks)) == {}


@pytest.mark.parametrize(
    "fields", [{}, {"returncode": 1}, {"returncode": -9, "oom_kills": 1}, {"state": "timeout"}], ids=str
)
def test_a_run_that_started_in_another_pod_than_asked_for_is_the_devices(fields: dict[str, Any]) -> None:
    told = evidence_of(raw({"before": {**BEFORE, "cpu_quota_us": 25_000}}, detail="x", **fields), job(POD))
    assert classify(told) is FailureClass.DEVICE
    assert "device 'k8s' (pod sidewinder-k8s, namespace lab) when the run started" in str(told.wrong_spec)
    assert "devices.k8s.cpu: asked is 500m, there is 0.25 CPUs (25000 us of every 100000 us)" in str(told.wrong_spec)


def test_nobody_asks_a_machine_for_limits() -> None:
    assert evidence_of(raw({"before": BEFORE}), job(SSH)).wrong_spec is None


def test_a_users_rule_is_not_measured() -> None:
    looks = {"before": {**BEFORE, "cpu_quota_us": 25_000}, "after": BEFORE}
    assert classify(evidence_of(raw(looks), job(POD, is_measured=False))) is None
