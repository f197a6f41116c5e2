"""B24 over pods: a run that met its memory limit says so, whatever a wrapper made of its exit code; one that failed for
another reason does not, however much it had allocated. The report names the limit.
"""

from __future__ import annotations

from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace
from e2e.kubernetes.helpers_sweeps import Begin
from engine.helpers_engine import command, record
from sidewinder import report

EATS = "python3 -c 'x = bytearray(400 << 20)'"
RUNS = {
    "it is killed and the shell says 137": (EATS, "memory"),
    "a wrapper hides the code": (f"{EATS}; exit 0", "memory"),
    "a wrapper makes another code of it": (f"{EATS} || exit 3", "memory"),
    "its first process is killed": (f"exec {EATS}", "memory"),
    "SIGKILL, and nothing about memory": ("kill -KILL $$", "measurement"),
    "137 that it chose itself": ("exit 137", "measurement"),
    "a bug after a large peak": ("python3 -c 'x = bytearray(50 << 20); raise SystemExit(1)'", "measurement"),
}


def test_what_memory_did_and_what_it_did_not(namespace: Namespace, begin: Begin) -> None:
    device = namespace.device(memory="96Mi")
    points = [
        command("sh", "-c", script, metrics={"n": r"n=(\d)"}, device="k8s", parameters={"case": case})
        for case, (script, _) in RUNS.items()
    ]
    sweep = begin(points, device)
    assert set(sweep.wait().values()) == {"failed"}
    written: dict[str, Any] = {
        point.parameters["case"]: record(sweep.root, sweep.plan, run_id) for run_id, point in sweep.plan.points.items()
    }
    assert {case: one["failure"]["class"] for case, one in written.items()} == {
        case: failure_class for case, (_, failure_class) in RUNS.items()
    }
    assert {one["conditions"]["oom_kills"] for one in written.values() if one["failure"]["class"] == "memory"} == {1}
    for one in written.values():
        assert [attempt["n"] for attempt in one["attempts"]] == [1], "measured once"
        assert ("whose limit is 96 MiB" in one["failure"]["message"]) == (one["failure"]["class"] == "memory")
    assert sweep.ledger == []
    pod = namespace.pod()
    assert (pod["status"]["phase"], pod["status"]["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    report.build(str(sweep.root), sweep.plan)
    assert "whose limit is 96 MiB" in (sweep.root / "summary/report.html").read_text()


@pytest.mark.parametrize("says", ["n=1", "n="])
def test_a_helper_that_was_killed_is_told_of(says: str, namespace: Namespace, begin: Begin) -> None:
    """Exit code 0 and all that was asked for is a result: what it lost may not matter, but is said."""
    device = namespace.device(memory="96Mi")
    helped = command("sh", "-c", f"{EATS}; echo {says}", metrics={"n": r"n=(\d)"}, device="k8s")
    sweep = begin([helped], device)
    outcome = "ok" if says == "n=1" else "failed"
    assert set(sweep.wait().values()) == {outcome}
    said = sweep.record["warnings"] if outcome == "ok" else [sweep.record["failure"]["message"]]
    assert any("lack of memory (1 OOM kill" in one and "whose limit is 96 MiB" in one for one in said)
