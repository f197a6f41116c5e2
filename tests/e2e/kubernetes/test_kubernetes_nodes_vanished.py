"""A node that is cut off and whose object is deleted, as a cloud does with a machine that it lost: its pods are gone
from the API server, which proves nothing. The run there is over when its lease is.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.kubernetes.helpers_nodes import PREFERS_NODE2, Node2, lost_then_measured, quick_lease, story
from e2e.kubernetes.helpers_sweeps import Begin


def test_the_point_is_measured_on_another_node(node2: Node2, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_lease(monkeypatch)
    device = replace(node2.device(affinity=PREFERS_NODE2), recovery_after_s=3.0)
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    node2("cut")
    node2.cluster.api("DELETE", "/api/v1/nodes/node2")
    node2.until_runs(2, sweep)
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}

    written, told = sweep.record, story(sweep)
    lost = lost_then_measured(node2, sweep)
    assert lost["class"] == "transport"
    assert (lost["evidence"]["cause"], lost["evidence"]["proof"]) == ("node_gone", "lease"), told
    assert sweep.ledger[0] == "link_lost"
    assert any("its node is not in the cluster any more" in warning for warning in written["warnings"])
    assert written["device"]["pod"]["node"] == "node1"
