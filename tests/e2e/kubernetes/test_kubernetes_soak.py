"""A soak of a minute in pods: some bad luck of each sort keeps every promise, and what is checked of pods can fail."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import TestCluster, alone
from soak.evidence import EVIDENCE, Evidence, copy_to
from soak.kubernetes import soak_on
from soak.promises import PROMISES, check

# those that are over soon: the long ones are for `make soak-kubernetes`
POD_FAULTS = {"evicted": 1, "deleted at once": 1, "container killed": 1, "front killed": 1, "runner killed": 1}
NODE_FAULTS = {"node cut": 1, "kubelet killed": 1}
PACE = {"gap_s": (0.5, 5.0), "kill_s": (0.1, 3.0), "limit": 1, "scale": 0.25}


@pytest.fixture(scope="module")
def soaked(own_cluster: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another night: ``SEED=7 pytest tests/e2e/kubernetes/test_kubernetes_soak.py``."""
    if not own_cluster.is_own:
        pytest.skip("hurts a node and the API server: only on a cluster that the tests started")
    folder = tmp_path_factory.mktemp("soak")
    seed = int(os.environ.get("SEED") or 1)
    with alone(Path(own_cluster.kubeconfig).parent / "one-test-at-a-time"):
        faults = {"pod_faults": POD_FAULTS, "node_faults": NODE_FAULTS}
        errors = soak_on(
            own_cluster,
            folder,
            seed,
            15,
            nodes=("node2",),
            longest_s=0.8,
            long_share=0.0,
            idles=False,
            **faults,
            **PACE,
        )
        own_cluster.mend("node2")
    logs = "".join(f"{path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("controller-*.log")))
    assert errors == [], logs
    return folder


@pytest.fixture
def folder(soaked: Path, tmp_path: Path) -> Path:
    return copy_to(soaked, tmp_path)


def test_a_short_soak_in_pods_keeps_every_promise(soaked: Path) -> None:
    evidence = Evidence(soaked)
    assert [str(verdict) for verdict in check(evidence) if verdict.broken] == []
    assert any(one["code"] == -9 for one in evidence.invocations), "no controller was killed"
    assert len({fault.kind for fault in evidence.faults if fault.hit}) >= 3
    assert len(evidence.executions) >= 15
    assert {one.node for one in evidence.executions} == {"node2"}


# -- what is checked of pods alone, on evidence that somebody tampered with (tests/soak has the rest) ------------------


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _run_on_another_node(folder: Path) -> None:
    path = next((folder / EVIDENCE / "witness/k1").iterdir())
    path.write_text(path.read_text().replace("node2", "node1"))


def _name_another_pod(folder: Path) -> None:
    point = next(point for point in Evidence(folder).points.values() if point["kind"] == "ok")
    path = folder / "runs/soak/records" / point["device"] / f"{point['run_id']}.json"
    _edit(path, lambda record: record["device"]["pod"].update(uid="another"))


def _leave_a_pod(folder: Path) -> None:
    _edit(folder / EVIDENCE / "left.json", lambda left: left.update(cluster=["pod sidewinder-k1"]))


@pytest.mark.parametrize(
    ("number", "spoil"),
    [(4, _run_on_another_node), (4, _name_another_pod), (7, _leave_a_pod)],
    ids=lambda value: value.__name__.strip("_") if callable(value) else str(value),
)
def test_a_check_sees_a_broken_promise(number: int, spoil: Callable[[Path], None], folder: Path) -> None:
    spoil(folder)
    verdict = check(Evidence(folder))[number - 1]
    assert verdict.broken, PROMISES[number - 1].__name__
