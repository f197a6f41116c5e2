"""A node that loses power during a run and comes back: the same pod, another container, and so another attempt."""

from __future__ import annotations

import pytest

from e2e.kubernetes.helpers_nodes import Node2, story
from e2e.kubernetes.helpers_sweeps import Begin


@pytest.mark.parametrize("until_noticed", [False, True], ids=["at-once", "after-the-cluster-noticed"])
def test_power_off_and_on_during_a_run(until_noticed: bool, node2: Node2, begin: Begin) -> None:
    device = node2.device()
    sweep = begin([node2.point(device)], device)
    node2.until_runs(1, sweep)
    before = node2.namespace.pod()
    node2("power-off")
    if until_noticed:
        node2.until_away()
    node2("power-on")
    node2.until_runs(2, sweep)
    node2.witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}

    written, told = sweep.record, story(sweep)
    assert sweep.attempts == [(1, "lost"), (2, "ok")], told
    (lost, _) = written["attempts"]
    assert lost["class"] == "transport"
    # A runtime that saw its containers die before it died itself knows how; one that did not calls it unknown.
    assert lost["evidence"]["cause"] in ("node_restarted", "restarted"), told
    assert lost["evidence"]["proof"] == "container", told
    assert lost["evidence"]["node"] == "node2"
    (repeat,) = [line for line in sweep.lines if line["event"] == "repeat"]
    assert (repeat["failure_class"], repeat["attempt"], repeat["over"]) == ("transport", 1, True)
    assert repeat["evidence"] == lost["evidence"]
    assert sweep.ledger[0] == "link_lost"
    assert "reconnected" not in sweep.ledger
    assert any(lost["error"] in warning and "was repeated" in warning for warning in written["warnings"])
    pod = written["device"]["pod"]
    assert (pod["uid"], pod["node"], pod["restarts"]) == (before["metadata"]["uid"], "node2", 1), "the same pod"
    assert pod["container_id"] != before["status"]["containerStatuses"][0]["containerID"]
    first, second = node2.witness.executions
    assert (first.complete, second.complete) == (False, True)
    assert first.last_s < second.start_s
    assert written["metrics"]["start_ns"] == second.start_ns
