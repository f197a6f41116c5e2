"""A node whose object is deleted while it works: the cluster takes its pods away, and says why."""

from __future__ import annotations

from e2e.kubernetes.helpers_nodes import PREFERS_NODE2, Node2, lost_then_measured, story
from e2e.kubernetes.helpers_sweeps import Begin


def test_the_point_is_measured_on_another_node(node2: Node2, begin: Begin) -> None:
    device = node2.device(affinity=PREFERS_NODE2)
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    uid = node2.namespace.pod()["metadata"]["uid"]
    node2.cluster.api("DELETE", "/api/v1/nodes/node2")
    node2.until_runs(2, sweep)  # the collector of such pods comes by within a minute
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}

    written, told = sweep.record, story(sweep)
    lost = lost_then_measured(node2, sweep)
    assert lost["class"] == "transport"
    assert lost["evidence"]["cause"] == "node_gone", told
    assert lost["evidence"]["proof"] in ("front", "container"), "its kubelet works, and ended it"
    assert (lost["evidence"]["node"], lost["evidence"]["pod_uid"]) == ("node2", uid)
    assert any("its node is not in the cluster any more" in warning for warning in written["warnings"])
    assert written["device"]["pod"]["node"] == "node1"
    assert written["device"]["pod"]["uid"] != uid
