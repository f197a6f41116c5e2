"""A node that is cut off, and whose pod the cluster and a person took away: the API server knows nothing of the run
there any more, which goes on. Another pod may be had on another node at once, and is not used before that run is over.
What comes back later changes nothing (B25).
"""

from __future__ import annotations

import pytest

from e2e.kubernetes.helpers_cluster import until
from e2e.kubernetes.helpers_nodes import PREFERS_NODE2, Node2, lost_then_measured, quick_lease, story, tolerations
from e2e.kubernetes.helpers_sweeps import Begin

LEASE_S = 35.0  # longer than the cluster takes to notice (16 s) and to take the pod away


def test_another_node_is_used_when_the_old_run_is_over(
    node2: Node2, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_lease(monkeypatch, LEASE_S)
    device = node2.device(affinity=PREFERS_NODE2, tolerations=tolerations(1))
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    before = node2.namespace.pod()
    assert before["spec"]["nodeName"] == "node2"
    uid = before["metadata"]["uid"]
    node2("cut")
    until(lambda: node2.namespace.pod()["metadata"].get("deletionTimestamp"), "the cluster takes it off its node")
    node2.namespace.delete_pod(grace_s=0)  # as a person does with one that stays "Terminating"
    until(lambda: (node2.namespace.pod() or before)["metadata"]["uid"] != uid, "another one is made")
    node2.until_runs(2, sweep)
    node2("heal")
    until(lambda: node2.cluster.has_ready("node2"), "the node is back, with what it still holds")
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}

    written, told = sweep.record, story(sweep)
    lost = lost_then_measured(node2, sweep)
    assert written["metrics"]["start_ns"] == node2.witness.executions[1].start_ns
    assert lost["class"] == "preempted", "the cluster took it away"
    assert (lost["evidence"]["cause"], lost["evidence"]["proof"]) == ("tainted", "lease"), told
    assert (lost["evidence"]["node"], lost["evidence"]["pod_uid"]) == ("node2", uid)
    assert "device_down" not in sweep.ledger
    assert any("preempted" in warning and "was repeated" in warning for warning in written["warnings"])
    assert (written["device"]["pod"]["node"], written["device"]["pod"]["restarts"]) == ("node1", 0)
    said = [event["reason"] for event in sweep.told.events if event["kind"] == "waiting"]
    assert any("nothing proves yet that what ran in its earlier pod has ended" in one for one in said)
