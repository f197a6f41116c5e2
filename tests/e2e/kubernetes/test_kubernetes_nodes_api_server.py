"""An API server that is killed and started again costs no measurement: neither a run that goes on meanwhile, nor one
that ends, nor one that is to start, nor the next one afterwards.
"""

from __future__ import annotations

import json
from typing import Any

from e2e.kubernetes.helpers_cluster import until
from e2e.kubernetes.helpers_nodes import Node2, story
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import record

RUNS = (("on", "goes-on"), ("off", "ends"), ("to-start", "before"), ("next", "earlier"))
LATER = (("to-start", "meanwhile"), ("next", "afterwards"))


def test_one_outage(node2: Node2, begin: Begin) -> None:
    devices = {name: node2.device(name, cpu="200m", lock=name) for name, _ in RUNS}
    held = ("goes-on", "ends")
    points = [node2.point(devices[name], run, "hold" if run in held else 0.1) for name, run in (*RUNS, *LATER)]
    sweep = begin(points, *devices.values(), now=len(RUNS))
    until(lambda: len(sweep.told.done) == 2 and len(node2.witness.executions) == 4, "two are measured, two run")

    def events_of(run: str) -> list[dict[str, Any]]:
        return [line for line in sweep.lines if line.get("run_id") == run_ids[run]]

    run_ids = {point.parameters["run"]: run_id for run_id, point in sweep.plan.points.items()}
    with node2.cluster.without_api_server():
        for run in held:
            until(lambda run=run: events_of(run), "the links are lost")
        node2.witness.let_go("ends")
        until(lambda: node2.witness.of("ends")[0].complete, "one ends meanwhile")
        sweep.submit(1)
        until(lambda: any("cannot be reached" in json.dumps(one) for one in events_of("meanwhile")), "one cannot start")
    until(lambda: any(one["event"] == "reconnected" for one in events_of("goes-on")), "one is attached to again")
    node2.witness.let_go("goes-on")
    sweep.submit(1)
    outcomes = sweep.wait()

    told = story(sweep)
    assert set(outcomes.values()) == {"ok"}, told
    executions = {one.run: one.start_ns for one in node2.witness.executions}
    assert len(node2.witness.executions) == len(executions) == len(points), "each ran once"
    for run, run_id in run_ids.items():
        written = record(sweep.root, sweep.plan, run_id)
        assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "ok")], told
        assert written["metrics"]["start_ns"] == executions[run]
        pod = node2.namespace.pod(f"sidewinder-{written['device']['device_id']}")
        assert written["device"]["pod"]["uid"] == pod["metadata"]["uid"], "the same pod all the time"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        was_lost = any("the link was lost for" in warning for warning in written["warnings"])
        assert was_lost == (run in held), told
    for run, state in (("goes-on", "running"), ("ends", "finished")):
        assert events_of(run)[0]["event"] == "link_lost"
        assert [one["state"] for one in events_of(run) if one["event"] == "reconnected"] == [state]
    assert "device_down" not in sweep.ledger, told
