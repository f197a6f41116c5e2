"""A death: the end of one life of a pod's container, with its cause, the failure class that follows, and its proof.

Fields and reason codes of the pod's last status decide, never message text. docs/kubernetes.md shows ``TABLE``, and
docs/notes/pod-deaths.md says why it is read in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sidewinder.model import Failure, FailureClass, Json

from .kubernetes_verdict import Pod, container_status, id_of
from .kubernetes_watch import Seen

SIGKILL: Final = 137


class Death(NamedTuple):
    """One row of the table: what happened, what shows it, and whose fault it is."""

    cause: str
    failure_class: FailureClass
    what: str  # for docs
    evidence: str  # for docs
    sentence: str  # follows "pod NAME on node NODE "; {limit} where one was met


_PREEMPTED, _TRANSPORT = FailureClass.PREEMPTED, FailureClass.TRANSPORT
_TARGET: Final = "condition `DisruptionTarget`"

TABLE: Final = (
    Death(
        "evicted",
        _PREEMPTED,
        "it is evicted (a node is drained, anybody calls the eviction API)",
        f"{_TARGET}: `EvictionByEvictionAPI`",
        "was evicted, as when a node is drained",
    ),
    Death(
        "preempted",
        _PREEMPTED,
        "a pod of a higher priority takes its place",
        f"{_TARGET}: `PreemptionByScheduler`",
        "had to make room for a pod of a higher priority",
    ),
    Death(
        "tainted",
        _PREEMPTED,
        "its node got a taint that it does not tolerate (unreachable for minutes, too)",
        f"{_TARGET}: `DeletionByTaintManager`",
        "was taken off its node, which has a taint that it does not tolerate",
    ),
    Death(
        "node_pressure",
        _PREEMPTED,
        "its node is short of memory or disk, or is shut down",
        f"{_TARGET}: `TerminationByKubelet`",
        "was ended by its node, which is short of memory or disk, or is being shut down",
    ),
    Death(
        "disrupted",
        _PREEMPTED,
        "the cluster takes it away for another reason that it names",
        f"{_TARGET}: any other reason",
        "was taken away by the cluster",
    ),
    Death(
        "storage_limit",
        FailureClass.MEASUREMENT,
        "it writes more than its own limit of local storage",
        "phase `Failed`, reason `Evicted`, no `DisruptionTarget`",
        "wrote more than its own limit of local storage{limit} and was ended for that. Raise `ephemeral_storage` (or "
        "the `sizeLimit` of the volume), or write less",
    ),
    Death(
        "out_of_memory",
        FailureClass.MEMORY,
        "its container passes the memory limit as a whole (cgroup v2: any process of it does)",
        "container terminated: `OOMKilled`, exit code 137",
        "needed more memory than its limit{limit}: its container was killed with everything in it. Give it more "
        "memory, or ask for less (a smaller model, context or batch)",
    ),
    Death(
        "node_restarted",
        _TRANSPORT,
        "its node lost power, or its runtime lost it, and is back",
        "container terminated: `Unknown` or `ContainerStatusUnknown`",
        "was lost with its node, which started again",
    ),
    Death(
        "restarted",
        _TRANSPORT,
        "its container ends for any other reason and is started again",
        "container terminated otherwise, or a later one runs",
        "lost its container, which ended and was started again",
    ),
    Death(
        "node_gone",
        _TRANSPORT,
        "its node's object was removed",
        f"{_TARGET}: `DeletionByPodGC`",
        "was removed, because its node is not in the cluster any more",
    ),
    Death(
        "deleted",
        _TRANSPORT,
        "somebody deletes it",
        "`deletionTimestamp`, or gone, without any of these",
        "was deleted by somebody",
    ),
    Death(
        "vanished",
        _TRANSPORT,
        "it is gone, or another one has its name, and nobody saw how (no controller ran)",
        "404, or another uid",
        "is gone, and nobody saw how",
    ),
)
BY_CAUSE: Final = {row.cause: row for row in TABLE}
_BY_DISRUPTION: Final = {
    "EvictionByEvictionAPI": "evicted",
    "PreemptionByScheduler": "preempted",
    "DeletionByTaintManager": "tainted",
    "TerminationByKubelet": "node_pressure",
    "DeletionByPodGC": "node_gone",
}
_LOST: Final = frozenset({"Unknown", "ContainerStatusUnknown"})

PROOFS: Final = {
    "container": "its kubelet reports the end of its container{how}",
    "front": "our front in it was killed with it",
    "lease": "a run ends itself when it hears nothing of us, and {silent_s:.0f} s have passed since",
}


class Life(NamedTuple):
    """One life of a container, as far as its name tells: what the agent reports as its boot."""

    uid: str
    container_id: str  # without the runtime's name
    started_at: str

    @classmethod
    def of(cls, identity: str) -> Life:
        """Of ``Container.identity``."""
        uid, _, rest = identity.partition("/")
        container_id, _, started_at = rest.partition("@")
        return cls(uid, container_id, started_at)


def death_of(
    life: Life,
    seen: Seen | None,
    *,
    pod: str,
    container: str,
    front_was_killed: bool = False,
    silent_s: float | None = None,
) -> Failure | None:
    """How that life ended; None: nothing proves that it is over. ``seen``: the last of its pod (None: nothing was seen
    of it); ``silent_s``: since our last word to it, where that is longer than any run outlives."""
    ended, is_last = _end_of(life, seen, container)
    if ended is not None or not is_last:
        proof = "container"
    elif front_was_killed and (seen is None or seen.is_gone or _is_doomed(seen.pod)):
        proof = "front"
    elif silent_s is not None:
        proof = "lease"
    else:
        return None
    row = BY_CAUSE[_cause(seen, ended, is_last=is_last)]
    node = str(seen.pod["spec"].get("nodeName") or "") if seen is not None else ""
    known = {
        "cause": row.cause,
        "proof": proof,
        "pod": pod,
        "pod_uid": life.uid,
        "container_id": life.container_id,
        "node": node,
        **_reasons(seen, ended, is_last=is_last),
    }
    limit = _limit_of(row.cause, seen, container)
    how = f" ({ended.get('reason')}, exit code {ended.get('exitCode')})" if ended is not None else ""
    over = PROOFS[proof].format(how=how, silent_s=silent_s or 0.0)
    what = row.sentence.format(limit=f" ({limit})" if limit else "")
    where = f"pod {pod} on node {node}" if node else f"pod {pod}"
    return Failure(row.failure_class, f"{where} {what}. It is over: {over}", {k: v for k, v in known.items() if v})


def _end_of(life: Life, seen: Seen | None, container: str) -> tuple[Mapping[str, Any] | None, bool]:
    """What the kubelet says of the end of that very container (None: nothing), and whether the pod has no later one."""
    if seen is None or seen.pod["metadata"]["uid"] != life.uid:
        return None, True
    status = container_status(seen.pod, container) or {}
    for key in ("state", "lastState"):
        ended = (status.get(key) or {}).get("terminated")
        if ended is not None and id_of(ended.get("containerID")) == life.container_id:
            return ended, key == "state"
    running = (status.get("state") or {}).get("running") or {}
    is_later = bool(running.get("startedAt")) and str(running["startedAt"]) > life.started_at
    return None, not (is_later and id_of(status.get("containerID")) != life.container_id)


def _is_doomed(pod: Pod) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) or _phase(pod) in ("Failed", "Succeeded")


def _phase(pod: Pod) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def disruption(pod: Pod) -> str | None:
    """The reason code of the one condition by which the cluster says that it takes a pod away."""
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return str(one.get("reason") or "")
    return None


def _cause(seen: Seen | None, ended: Mapping[str, Any] | None, *, is_last: bool) -> str:
    if seen is None:
        return "vanished"
    if not is_last:  # what is said of the pod is said of the life after this one
        return _of_container(ended)
    pod = seen.pod
    reason = disruption(pod)
    if reason is not None:
        return _BY_DISRUPTION.get(reason, "disrupted")
    if _phase(pod) == "Failed" and (pod.get("status") or {}).get("reason") == "Evicted":
        return "storage_limit"
    if pod["metadata"].get("deletionTimestamp") or (seen.is_gone and ended is None):
        return "deleted"
    return _of_container(ended)


def _of_container(ended: Mapping[str, Any] | None) -> str:
    if ended is not None and ended.get("reason") == "OOMKilled" and ended.get("exitCode") == SIGKILL:
        return "out_of_memory"
    if ended is not None and ended.get("reason") in _LOST:
        return "node_restarted"
    return "restarted"


def _reasons(seen: Seen | None, ended: Mapping[str, Any] | None, *, is_last: bool) -> dict[str, Json]:
    found: dict[str, Json] = {}
    if seen is not None and is_last:
        status = seen.pod.get("status") or {}
        found.update(
            disruption=disruption(seen.pod),
            phase=status.get("phase"),
            reason=status.get("reason"),
            deletion_utc=seen.pod["metadata"].get("deletionTimestamp"),
            is_gone=seen.is_gone,
        )
    if ended is not None:
        found.update(
            container_reason=ended.get("reason"), exit_code=ended.get("exitCode"), ended_utc=ended.get("finishedAt")
        )
    return found


def _limit_of(cause: str, seen: Seen | None, container: str) -> str:
    name = {"storage_limit": "ephemeral-storage", "out_of_memory": "memory"}.get(cause)
    if name is None or seen is None:
        return ""
    spec = seen.pod["spec"]
    own: Mapping[str, Any] = next((one for one in spec.get("containers") or () if one["name"] == container), {})
    limit = ((own.get("resources") or {}).get("limits") or {}).get(name)
    told = [f"{name} {limit}"] if limit else []
    if cause == "storage_limit":
        for volume in spec.get("volumes") or ():
            size = (volume.get("emptyDir") or {}).get("sizeLimit")
            told += [f"volume {volume['name']} {size}"] if size else []
    return ", ".join(told)
