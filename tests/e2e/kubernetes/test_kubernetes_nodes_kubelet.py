"""A kubelet that is killed, and a link that is cut for some seconds, during a run: neither touches the run, which is
attached to again. (A cut that lasts until the cluster notices is in ``test_B25_kubernetes_node_lost.py``.)
"""

from __future__ import annotations

import pytest

from e2e.kubernetes.helpers_cluster import until
from e2e.kubernetes.helpers_nodes import Node2, story
from e2e.kubernetes.helpers_sweeps import Begin, Sweep


def one_attempt(sweep: Sweep, node: Node2, uid: str) -> None:
    assert set(sweep.wait().values()) == {"ok"}
    written = sweep.record
    assert sweep.attempts == [(1, "ok")], story(sweep)
    assert set(sweep.ledger) == {"link_lost", "reconnected"}, story(sweep)
    assert any("the link was lost for" in warning for warning in written["warnings"])
    (execution,) = node.witness.executions
    assert execution.complete
    assert written["metrics"]["start_ns"] == execution.start_ns
    pod = written["device"]["pod"]
    assert (pod["uid"], pod["node"], pod["restarts"]) == (uid, "node2", 0)


@pytest.mark.parametrize("until_noticed", [False, True], ids=["shortly", "until-the-cluster-noticed"])
def test_a_kubelet_that_is_killed(until_noticed: bool, node2: Node2, begin: Begin) -> None:
    device = node2.device()
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    uid = node2.namespace.pod()["metadata"]["uid"]
    node2("stop-kubelet")
    sweep.until_said("link_lost")
    if until_noticed:
        node2.until_away()
    node2("start-kubelet")
    until(lambda: "reconnected" in sweep.ledger, "it is attached to again")
    node2.witness.let_go()
    one_attempt(sweep, node2, uid)


def test_a_link_that_is_cut(node2: Node2, begin: Begin) -> None:
    device = node2.device()
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    uid = node2.namespace.pod()["metadata"]["uid"]
    node2("cut")
    sweep.until_said("nothing was heard of the container")
    node2("heal")
    until(lambda: "reconnected" in sweep.ledger, "it is attached to again")
    node2.witness.let_go()
    one_attempt(sweep, node2, uid)
