"""Tests on a real cluster: one for the session, a namespace for each test."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import OPT_IN, Namespace, TestCluster, alone, cluster, script, why_not
from e2e.kubernetes.helpers_nodes import Node2
from e2e.kubernetes.helpers_sweeps import POLICY, Begin, Sweep
from engine.helpers_engine import make_plan
from sidewinder.model import Device

# In CI a skip is a failure (tests/conftest.py). Where no cluster can be started at all, nothing is collected instead.
if os.environ.get("CI") == "true" and script() is None and os.environ.get(OPT_IN) != "1":
    warnings.warn("no cluster beside the project: tests/e2e/kubernetes does not run here", stacklevel=1)
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Cables are pulled on a cluster of our own only: in CI on another one such tests are left out, not skipped."""
    if os.environ.get("CI") == "true" and os.environ.get(OPT_IN) == "1":
        gone = [
            item
            for item in items
            if "own_cluster" in getattr(item, "fixturenames", ()) and "e2e/kubernetes" in item.nodeid
        ]
        config.hook.pytest_deselected(items=gone)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def test_cluster() -> Iterator[TestCluster]:
    why = why_not()
    if why is not None:
        pytest.skip(why)
    with cluster() as one:
        yield one


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    name = "own" if "own" in request.fixturenames else "test_cluster"
    found: TestCluster = request.getfixturevalue(name)
    with found.namespace() as one:
        yield one


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests."""
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    sweeps: list[Sweep] = []

    def begin(points: list[dict[str, Any]], *devices: Device, now: int | None = None) -> Sweep:
        plan = make_plan(tmp_path / "runs", points, devices=devices, policy=POLICY)
        sweeps.append(Sweep(tmp_path / "runs", plan, now=now))
        return sweeps[-1]

    yield begin
    for sweep in sweeps:
        sweep.engine.shutdown(20)


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[TestCluster]:
    """A second one, whose nodes may be hurt: on the first one that would disturb the tests of the other workers."""
    why = why_not()
    if why is not None:
        pytest.skip(why)
    with cluster("o") as one:
        yield one


@pytest.fixture
def own(own_cluster: TestCluster) -> Iterator[TestCluster]:
    if not own_cluster.is_own:
        pytest.skip("cuts cables and kills kubelets: only on a cluster that the tests started")
    with alone(Path(own_cluster.kubeconfig).parent / "one-test-at-a-time"):
        yield own_cluster
        own_cluster.mend("node2")  # the only one that tests hurt


@pytest.fixture
def node2(own: TestCluster, namespace: Namespace, tmp_path: Path) -> Node2:
    return Node2(own, namespace, tmp_path)
