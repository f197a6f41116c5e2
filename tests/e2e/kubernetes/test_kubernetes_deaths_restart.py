"""A controller and its pod that die together: the next controller must not take the new pod's "absent" for "never"."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace, until
from e2e.kubernetes.helpers_sweeps import POLICY, begun, held, let_go
from engine.helpers_engine import make_plan, only, record

CONTROLLER = Path(__file__).parents[2] / "engine" / "controller_script.py"


def test_a_controller_that_is_killed_and_its_pod_deleted(namespace: Namespace, tmp_path: Path) -> None:
    """Nobody saw how the pod went, by force or in peace: what ran in it may run for as long as its lease, which the new
    controller counts from its own start. Then it is attempt 2 that begins."""
    device = namespace.device()
    plan = make_plan(tmp_path / "runs", [held(device)], devices=[device], policy=POLICY)
    argv = [sys.executable, str(CONTROLLER), str(tmp_path / "runs")]
    first = subprocess.Popen(argv)
    try:
        before = until(lambda: namespace.pod() and begun(namespace) == 1 and namespace.pod(), "it runs")
    finally:
        first.kill()
        first.wait()
    namespace.delete_pod(grace_s=0)
    until(lambda: namespace.pod() is None, "it is gone")
    again = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        until(lambda: (namespace.pod() or {"status": {}})["status"].get("phase") == "Running", "there is a new one")
        let_go(namespace)
        out, _ = again.communicate(timeout=2 * PATIENCE_S)
    finally:
        again.kill()
        again.wait()
    assert json.loads(out) == {only(plan): "ok"}
    written = record(tmp_path / "runs", plan, only(plan))
    assert [(one["n"], one["outcome"]) for one in written["attempts"]] == [(1, "lost"), (2, "ok")]
    evidence = written["attempts"][0]["evidence"]
    assert (evidence["cause"], evidence["proof"]) == ("vanished", "lease")
    assert evidence["pod_uid"] == before["metadata"]["uid"] != written["device"]["pod"]["uid"]
    assert any("attempt 1" in warning and "was repeated" in warning for warning in written["warnings"])
    lines = [json.loads(line) for line in (tmp_path / "runs" / "retries.jsonl").read_text().splitlines()]
    assert [line["evidence"]["cause"] for line in lines if line["event"] == "repeat"] == ["vanished"]
    assert begun(namespace) == 1, "once in the new pod"
