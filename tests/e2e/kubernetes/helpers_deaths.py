"""Deaths of pods in tests: runs that are held while their pod dies, and what every file must say of it afterwards."""

from __future__ import annotations

import json
from typing import Any

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_sweeps import Sweep, begun, let_go

#: A first process that takes too much memory, or too much room in the container's own files, as soon as it is told to.
GREEDY = """
import os, time
while not os.path.exists("/sidewinder/eat"):
    time.sleep(0.05)
os.remove("/sidewinder/eat")
eaten = bytearray(400 << 20)
"""


def held_in(namespace: Namespace, sweep: Sweep) -> dict[str, Any]:
    """The pod in which the sweep's one point runs now."""
    sweep.until_begun()
    found: dict[str, Any] = until(lambda: begun(namespace) and namespace.pod(), "it runs")
    return found


def let_go_in_a_new_pod(namespace: Namespace, before: dict[str, Any]) -> None:
    """The point is tried again in another pod, and may end there."""

    def is_there() -> bool:
        pod = namespace.pod()
        new = pod is not None and pod["metadata"]["uid"] != before["metadata"]["uid"]
        return new and pod["status"].get("phase") == "Running"

    until(is_there, "its pod is made anew")
    let_go(namespace)


def evict(namespace: Namespace, name: str = "sidewinder-k8s") -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace.name}}
    namespace.api("POST", f"{namespace.path}/pods/{name}/eviction", body)


def transport_failures(sweep: Sweep) -> int:
    """What the breakers of this sweep heard."""
    return int(json.loads((sweep.root / "schedule.json").read_text())["transport_failures"])


def check_repeat(sweep: Sweep, cause: str, failure_class: str) -> dict[str, Any]:
    """Attempt 1 died of that and attempt 2 is the result; record, ledger, schedule and journal agree. The evidence."""
    written = sweep.record
    first, second = written["attempts"]
    assert (first["n"], first["outcome"], first["class"]) == (1, "lost", failure_class), first
    assert (second["n"], second["outcome"]) == (2, "ok"), second
    evidence: dict[str, Any] = first["evidence"]
    assert evidence["cause"] == cause, evidence
    assert written["device"]["pod"]["uid"] != evidence["pod_uid"]
    event = "preempted" if failure_class == "preempted" else "repeat"
    (line,) = [line for line in sweep.lines if line["event"] == event]
    assert line["evidence"] == evidence
    assert (line["attempt"], line["failure_class"], line["over"]) == (1, failure_class, True)
    told = [warning for warning in written["warnings"] if "was repeated" in warning]
    assert len(told) == 1, written["warnings"]
    assert evidence["pod"] in told[0]
    assert "It is over" in told[0], "a person reads what proves it"
    assert transport_failures(sweep) == (failure_class == "transport"), "what the breaker hears of it"
    return evidence


def check_result(sweep: Sweep, cause: str, failure_class: str) -> dict[str, Any]:
    """The death is the result of attempt 1, which is not repeated. The evidence."""
    written = sweep.record
    assert written["status"] == "failed"
    failure, (only_one,) = written["failure"], written["attempts"]
    assert (failure["class"], failure["evidence"]["cause"]) == (failure_class, cause), failure
    assert (only_one["n"], only_one["outcome"], only_one["class"]) == (1, "failed", failure_class)
    assert only_one["evidence"]["proof"] == failure["evidence"]["proof"]
    assert "raw" not in written, "nothing came home"
    assert not {"repeat", "preempted"} & set(sweep.ledger)
    assert transport_failures(sweep) == 0, "its breaker takes the device for alive"
    evidence: dict[str, Any] = failure["evidence"]
    return evidence


def wait_for(sweep: Sweep) -> str:
    (outcome,) = sweep.wait().values()
    return outcome
