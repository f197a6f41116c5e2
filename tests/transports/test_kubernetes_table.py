"""What an API server may answer and a pod's status may say, each with the class that it means."""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
import pytest

from sidewinder.errors import ConfigError, DeviceFault, TransportError
from sidewinder.transports.kubernetes_errors import Refused, Silent, translate, translate_admission
from sidewinder.transports.kubernetes_verdict import container_of, how_it_ended, judge

HOOK = 'admission webhook "lab.example" denied the request: only on Sundays'
QUOTA = 'pods "p" is forbidden: exceeded quota: q, requested: limits.cpu=1, used: limits.cpu=1, limited: limits.cpu=1'


def refusal(status: int, message: str = "", **more: Any) -> Refused:
    return Refused(status, {"message": message, **more})


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (refusal(401, "Unauthorized"), DeviceFault, "log in again"),
        (refusal(403, "pods is forbidden"), DeviceFault, "sidewinder devices role"),
        (refusal(422, "spec.containers: Invalid value"), DeviceFault, "refuses it"),
        (refusal(429, "slow down"), TransportError, "slow down"),
        (refusal(500), TransportError, "HTTP status 500"),
        (refusal(503), TransportError, "could not do it"),
        (refusal(410, "too old"), TransportError, "too old"),
        (refusal(418, "teapot"), TransportError, "not expected: teapot"),
        (Silent("no stream was opened", 15), TransportError, "no stream was opened within 15 s"),
        (TimeoutError(), TransportError, "did not answer in time"),
        (ConnectionRefusedError(111, "refused"), TransportError, "cannot be reached"),
        (ssl.SSLCertVerificationError("bad"), DeviceFault, "not trusted"),
        (ssl.SSLError("alert"), TransportError, "TLS"),
        (aiohttp.InvalidURL("x"), ConfigError, "no URL"),
        (aiohttp.ServerDisconnectedError(), TransportError, "cannot be reached"),
        (TransportError("ours"), TransportError, "ours"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, Exception) else None,
)
def test_what_keeps_us_from_asking(error: Exception, kind: type[Exception], words: str) -> None:
    found = translate(error, "device 'k8s'", "k8s")
    assert type(found) is kind
    assert words in str(found)


def test_a_bug_of_ours_is_no_verdict_about_a_device() -> None:
    assert translate(KeyError("x"), "device 'k8s'", "k8s") is None


@pytest.mark.parametrize(
    ("error", "is_allowed", "kind", "words"),
    [
        (refusal(403, HOOK), True, DeviceFault, "only on Sundays"),
        (refusal(400, HOOK), None, DeviceFault, "only on Sundays"),
        (refusal(403, "pods is forbidden: User x"), False, DeviceFault, "sidewinder devices role"),
        (refusal(404, 'namespaces "n" not found'), None, DeviceFault, "devices.k8s.namespace"),
        (refusal(500, 'failed calling webhook "w": no answer'), None, TransportError, "just now"),
        (refusal(422, "Invalid value"), None, DeviceFault, "Correct devices.k8s"),
    ],
)
def test_why_a_pod_is_not_created(error: Refused, is_allowed: bool | None, kind: type[Exception], words: str) -> None:
    found = translate_admission(error, "device 'k8s'", "k8s", is_allowed)
    assert type(found) is kind
    assert words in str(found)


def test_a_quota_is_told_from_other_refusals() -> None:
    assert refusal(403, QUOTA).is_quota
    assert not refusal(403, HOOK).is_quota
    assert not refusal(409, QUOTA).is_quota


def pod(
    state: dict[str, Any] | None = None,
    *,
    last: dict[str, Any] | None = None,
    phase: str = "Pending",
    conditions: list[dict[str, Any]] | None = None,
    restarts: int = 0,
    deleted: bool = False,
) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": phase, "conditions": conditions or []}
    if state is not None:
        one = {"name": "agent", "state": state, "lastState": last or {}, "restartCount": restarts}
        status["containerStatuses"] = [{**one, "containerID": "containerd://abc"}]
    metadata = {"name": "p", "uid": "u", **({"deletionTimestamp": "now"} if deleted else {})}
    return {"metadata": metadata, "spec": {"nodeName": "n", "containers": [{"name": "agent"}]}, "status": status}


READY = [{"type": "Ready", "status": "True"}]
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
RUNNING = {"running": {"startedAt": "2026-12-01T12:00:00Z"}}
STARTERROR = {"terminated": {"reason": "StartError", "exitCode": 128, "message": "no such file"}}
CRASHED = {"terminated": {"reason": "Error", "exitCode": 1}}


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": "said"}}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (pod(), "waiting", "no node has taken it"),
        (
            pod(conditions=[UNSCHEDULABLE]),
            "waiting",
            "Unschedulable: 0/2 nodes",
        ),
        (pod(waiting("ContainerCreating")), "waiting", "ContainerCreating"),
        (pod(waiting("ErrImageNeverPull")), "hopeless", "ErrImageNeverPull, said"),
        (pod(waiting("ImagePullBackOff")), "hopeless", "ImagePullBackOff"),
        (pod(waiting("CreateContainerConfigError")), "hopeless", "CreateContainerConfigError"),
        (pod(STARTERROR, phase="Failed"), "hopeless", "no such file"),
        (pod(waiting("CrashLoopBackOff"), last=STARTERROR), "hopeless", "no such file"),
        (pod(waiting("CrashLoopBackOff"), last=CRASHED, restarts=1), "waiting", "CrashLoopBackOff"),
        (pod(waiting("CrashLoopBackOff"), last=CRASHED, restarts=2), "hopeless", "exit code 1"),
        (pod(CRASHED, phase="Running"), "waiting", "to be started again"),
        (pod(RUNNING, phase="Running"), "waiting", "not ready"),
        (pod(RUNNING, phase="Running", conditions=READY), "ready", ""),
        (pod(RUNNING, phase="Running", conditions=READY, deleted=True), "terminating", "being deleted"),
        (pod({"terminated": {"reason": "Completed", "exitCode": 0}}, phase="Succeeded"), "over", "Succeeded"),
        (pod(CRASHED, phase="Failed"), "over", "exit code 1"),
    ],
)  # fmt: skip
def test_what_a_status_says(status: dict[str, Any], state: str, words: str) -> None:
    verdict = judge(status, "agent")
    assert verdict.state == state
    assert words in verdict.why


def test_what_waiting_cannot_mend_is_given_no_time_and_what_may_pass_some() -> None:
    assert judge(pod(waiting("ErrImageNeverPull")), "agent").after_s == 0
    assert judge(pod(waiting("ErrImagePull")), "agent").after_s == 60


def test_an_eviction_is_told_in_the_words_of_the_cluster() -> None:
    evicted = pod(CRASHED, phase="Failed")
    evicted["status"] |= {"reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the limit"}
    assert "Evicted" in how_it_ended(evicted, "agent")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drain"}
    assert "EvictionByEvictionAPI" in judge(pod(RUNNING, conditions=[target], deleted=True), "agent").why


def test_each_life_of_a_container_is_another_one() -> None:
    first = container_of(pod(RUNNING, phase="Running"), "agent")
    assert first is not None
    again = container_of(pod({"running": {"startedAt": "2026-12-01T12:00:09Z"}}, phase="Running", restarts=1), "agent")
    assert again is not None
    assert first.identity != again.identity
    assert container_of(pod(CRASHED), "agent") is None
    assert container_of(pod(RUNNING), "other") is None


def test_why_no_node_takes_it_is_short_enough_for_a_display() -> None:
    said = "0/4 nodes are available: 1 node(s) had untolerated taint {a: b}, 3 Insufficient cpu"
    for more in (
        ". no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful.",
        ". preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod.",
        "",
    ):
        verdict = judge(pod(conditions=[{**UNSCHEDULABLE, "message": said + more}]), "agent")
        assert verdict.why == f"Unschedulable: {said}"
