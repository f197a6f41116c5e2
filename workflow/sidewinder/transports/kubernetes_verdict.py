"""A verdict: what a pod's status says about the pod as a device: usable, on its way, never, or over.

Read from fields and reason codes only; the sentences of the status go to people as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .kubernetes_spec import DEVICE, MANAGED_BY, OURS, SPEC_HASH

# How long a container may stand so before it is given up: what may pass gets a while, what cannot gets none.
_HOPELESS_AFTER_S: Final[Mapping[str, float]] = {
    "ErrImageNeverPull": 0.0,
    "InvalidImageName": 0.0,
    "ErrImagePull": 60.0,  # a registry may be away for a moment
    "ImagePullBackOff": 60.0,
    "RegistryUnavailable": 60.0,
    "ImageInspectError": 20.0,
    "CreateContainerConfigError": 5.0,  # a Secret that is made together with the pod
    "CreateContainerError": 20.0,
    "RunContainerError": 10.0,
}
_IMAGE: Final = frozenset(
    {
        "ErrImageNeverPull",
        "InvalidImageName",
        "ErrImagePull",
        "ImagePullBackOff",
        "RegistryUnavailable",
        "ImageInspectError",
    }
)
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})
_PREEMPTION: Final = re.compile(r"\.?\s*(?:no new claims to deallocate,?\s*)?\bpreemption: ")  # to the end, for people
_CRASHES: Final = 2  # its first process waits for ever: that it ended so often is no accident

Pod = Mapping[str, Any]


class Container(NamedTuple):
    """One life of a container: what is in it is gone with it."""

    pod: str
    uid: str
    node: str
    id: str
    started_at: str
    restarts: int

    @property
    def identity(self) -> str:
        """What changes with every life."""
        return f"{self.uid}/{id_of(self.id)}@{self.started_at}"


class Verdict(NamedTuple):
    """``state``: ``ready``, ``waiting``, ``hopeless`` (``cause`` says in whom), ``over`` or ``terminating``.

    ``after_s``: a hopeless one is that only when it has stood so for so long."""

    state: str
    why: str = ""
    cause: str = ""  # "image", "reference", "command", "crash"
    after_s: float = 0.0


def id_of(container_id: object) -> str:
    """Without the name of the runtime in front."""
    return str(container_id or "").rpartition("/")[2]


def is_ours(pod: Pod) -> bool:
    return (pod["metadata"].get("labels") or {}).get(MANAGED_BY) == OURS


def annotation(pod: Pod, name: str) -> str | None:
    found = (pod["metadata"].get("annotations") or {}).get(name)
    return None if found is None else str(found)


def hash_of(pod: Pod) -> str | None:
    return annotation(pod, SPEC_HASH)


def device_of(pod: Pod) -> str | None:
    return annotation(pod, DEVICE)


def container_status(pod: Pod, name: str) -> Mapping[str, Any] | None:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return next((one for one in statuses if one["name"] == name), None)


def container_of(pod: Pod, name: str) -> Container | None:
    """The life that goes on now; None: none."""
    status = container_status(pod, name)
    running = ((status or {}).get("state") or {}).get("running")
    if status is None or running is None or not status.get("containerID"):
        return None
    metadata = pod["metadata"]
    node = str(pod["spec"].get("nodeName") or "")
    restarts = int(status.get("restartCount") or 0)
    return Container(
        metadata["name"], metadata["uid"], node, status["containerID"], str(running.get("startedAt") or ""), restarts
    )


def judge(pod: Pod, container: str) -> Verdict:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return Verdict("terminating", f"it is being deleted{_disruption(pod)}")
    found = container_status(pod, container)
    bad = _never_started(found) if found is not None else None
    if bad is not None:
        return bad
    if status.get("phase") in ("Failed", "Succeeded"):
        return Verdict("over", how_it_ended(pod, container))
    if found is None:
        names = [one["name"] for one in pod["spec"].get("containers") or ()]
        if container not in names:
            return Verdict("hopeless", f"it has no container {container!r}, only {', '.join(names)}", "reference")
        return Verdict("waiting", _unscheduled(pod) or "no node has taken it yet")
    state = found.get("state") or {}
    waiting = state.get("waiting")
    if waiting is not None:
        return _waiting(waiting, found)
    if state.get("running") is None:
        return Verdict("waiting", "its container ended and is to be started again")
    if _is(pod, "Ready"):
        return Verdict("ready")
    return Verdict("waiting", _condition(pod, "Ready") or "its container runs and is not ready")


def _never_started(status: Mapping[str, Any]) -> Verdict | None:
    for ended in (_terminated(status, "state"), _terminated(status, "lastState")):
        if ended is not None and ended.get("reason") in _NOT_STARTED:
            return Verdict("hopeless", f"its command cannot be run: {_said(ended)}", "command")
    return None


def _waiting(waiting: Mapping[str, Any], status: Mapping[str, Any]) -> Verdict:
    reason = str(waiting.get("reason") or "")
    why = _said(waiting)
    if reason in _HOPELESS_AFTER_S:
        cause = "image" if reason in _IMAGE else "reference"
        return Verdict("hopeless", why, cause, _HOPELESS_AFTER_S[reason])
    ended = _terminated(status, "lastState")
    if reason == "CrashLoopBackOff" and int(status.get("restartCount") or 0) >= _CRASHES and ended is not None:
        return Verdict("hopeless", f"its first process ends again and again: {_said(ended)}", "crash")
    return Verdict("waiting", why)


def how_it_ended(pod: Pod, container: str) -> str:
    """Why a pod is over, or why the last life of its container is: everything that the status has about it."""
    status = pod.get("status") or {}
    parts = [str(status[key]) for key in ("reason", "message") if status.get(key)]
    found = container_status(pod, container) or {}
    ended = _terminated(found, "state") or _terminated(found, "lastState")
    if ended is not None:
        parts.append(f"container {_said(ended)}")
    parts.append(_disruption(pod).lstrip(" (").rstrip(")"))
    text = ", ".join(part for part in parts if part)
    return f"{status.get('phase') or 'gone'}{': ' + text if text else ''}"


def _terminated(status: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = (status.get(key) or {}).get("terminated")
    return found


def _said(state: Mapping[str, Any]) -> str:
    code = f"exit code {state['exitCode']}" if "exitCode" in state else ""
    words = [str(state.get("reason") or ""), code, str(state.get("message") or "").strip()]
    return ", ".join(word for word in words if word)


def _disruption(pod: Pod) -> str:
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return f" ({one.get('reason')}: {one.get('message')})"
    return ""


def _unscheduled(pod: Pod) -> str:
    """Why no node has taken it, without what the scheduler adds about the pods that it might have sent away for it."""
    return _PREEMPTION.split(_condition(pod, "PodScheduled"), 1)[0]


def _condition(pod: Pod, kind: str) -> str:
    """What a condition that does not hold says; empty: it holds, or nothing is known."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == kind and one.get("status") != "True":
            return ": ".join(str(one[key]) for key in ("reason", "message") if one.get(key))
    return ""


def _is(pod: Pod, kind: str) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)
