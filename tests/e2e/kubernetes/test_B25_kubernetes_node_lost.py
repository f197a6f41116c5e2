"""B25: a node that is away for a short while costs nothing; a pod that stays "Terminating" is neither forced away nor
waited for by a second run beside it; each attempt that was lost is told of once.

A node that is lost for good, and one that comes back with the old pod after the point was measured elsewhere, are
``test_kubernetes_nodes_pinned.py``, ``test_kubernetes_nodes_moved.py`` and ``test_kubernetes_nodes_vanished.py``.
"""

from __future__ import annotations

import pytest

from e2e.kubernetes.helpers_cluster import until
from e2e.kubernetes.helpers_nodes import PREFERS_NODE2, Node2, quick_lease, story, tolerations
from e2e.kubernetes.helpers_sweeps import Begin


def test_a_node_that_is_not_ready_for_a_while(node2: Node2, begin: Begin) -> None:
    device = node2.device()
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    before = node2.namespace.pod()
    node2("cut")
    node2.until_away()
    node2("heal")
    until(lambda: "reconnected" in sweep.ledger, "it is attached to again")
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    assert sweep.attempts == [(1, "ok")], story(sweep)
    (execution,) = node2.witness.executions
    assert execution.complete
    assert set(sweep.ledger) == {"link_lost", "reconnected"}
    assert any("the link was lost for" in warning for warning in sweep.record["warnings"])
    assert sweep.record["device"]["pod"]["uid"] == before["metadata"]["uid"]


def test_a_pod_that_stays_terminating(node2: Node2, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_lease(monkeypatch)
    device = node2.device(affinity=PREFERS_NODE2, tolerations=tolerations(1))
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    uid = node2.namespace.pod()["metadata"]["uid"]
    node2("cut")
    until(lambda: node2.namespace.pod()["metadata"].get("deletionTimestamp"), "the cluster takes it off its node")
    sweep.until_said("is being deleted; it is waited for")
    assert node2.namespace.pod()["metadata"]["uid"] == uid, "nobody forced it away"
    assert len(node2.witness.executions) == 1
    node2("heal")
    node2.until_runs(2, sweep)
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    first, second = node2.witness.executions
    assert (first.complete, second.complete) == (False, True)
    assert first.last_s < second.start_s
    assert sweep.attempts == [(1, "lost"), (2, "ok")], story(sweep)
    (lost, _) = sweep.record["attempts"]
    assert (lost["class"], lost["evidence"]["cause"]) == ("preempted", "tainted"), story(sweep)
    assert sweep.ledger.count("preempted") == 1, "once"
    assert "repeat" not in sweep.ledger
    assert sweep.record["metrics"]["start_ns"] == second.start_ns


def test_a_pod_that_somebody_else_deletes(node2: Node2, begin: Begin) -> None:
    """Gone, without a word of ours."""
    device = node2.device()
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    node2.namespace.delete_pod(grace_s=0)
    node2.until_runs(2, sweep)
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    first, second = node2.witness.executions
    assert first.last_s < second.start_s
    assert sweep.attempts == [(1, "lost"), (2, "ok")], story(sweep)
    (lost, _) = sweep.record["attempts"]
    assert (lost["class"], lost["evidence"]["cause"]) == ("transport", "deleted"), story(sweep)
    assert sweep.ledger.count("repeat") == 1
    assert sweep.record["metrics"]["start_ns"] == second.start_ns, "a ghost's output is nobody's record"
