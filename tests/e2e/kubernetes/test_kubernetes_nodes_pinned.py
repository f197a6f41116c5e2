"""A node that is cut off for good, and the device is pinned to it: the run there ends by itself, its point is a hole
and no other node is asked; when the node is there again the same command measures it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from e2e.kubernetes.helpers_cluster import until
from e2e.kubernetes.helpers_nodes import Node2, quick_lease, story
from e2e.kubernetes.helpers_sweeps import Begin


def test_a_hole_and_then_a_result(node2: Node2, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    quick_lease(monkeypatch)
    device = replace(node2.device(), recovery_after_s=3.0, give_up_after_s=6.0, max_transport_failures=2)
    sweep = begin([node2.point(device)], device)
    first = node2.until_runs(1, sweep)
    uid = node2.namespace.pod()["metadata"]["uid"]
    node2("cut")
    assert set(sweep.wait().values()) == {"hole"}

    written, told = sweep.record, story(sweep)
    assert written["failure"]["class"] == "not_attempted"
    assert written["failure"]["evidence"]["cause"] == "transport", told
    assert sweep.attempts == [(1, "lost")], "one attempt, and nobody knows better: none was begun beside it"
    assert written["attempts"][0]["class"] == "transport"
    assert sweep.ledger[0] == "link_lost"
    assert sweep.ledger[-1] == "given_up"
    assert "device_down" in sweep.ledger
    assert "repeat" not in sweep.ledger
    assert any("took its device down" in warning for warning in written["warnings"])
    (cut,) = node2.witness.executions
    assert (cut.start_ns, cut.complete) == (first.start_ns, False), "the lease ended it"
    assert node2.namespace.pod()["metadata"]["uid"] == uid, "it was not forced away"

    node2("heal")
    until(lambda: node2.cluster.has_ready("node2"), "the node is back")
    node2.witness.let_go()
    again = begin([node2.point(device)], device)
    assert set(again.wait().values()) == {"ok"}
    ended, second = node2.witness.executions
    assert ended == cut, "not a word of it since"
    assert cut.last_s < second.start_s
    assert again.attempts[-1] == (2, "ok"), story(again)
    assert again.record["metrics"]["start_ns"] == second.start_ns
    assert again.record["device"]["pod"]["node"] == "node2"
