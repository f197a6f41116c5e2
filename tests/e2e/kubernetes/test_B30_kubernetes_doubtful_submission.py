"""B30 over pods: the start went through and its answer was lost, came too late, or its controller died in that moment:
there is one run all the same, and it is the one that is in the record.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.helpers_ssh import ProxyThread
from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_link import behind, server_of
from e2e.kubernetes.helpers_pods import connect
from e2e.kubernetes.helpers_sweeps import POLICY, Begin, Sweep
from e2e.kubernetes.helpers_witness import PodWitness, programs, witnessed
from engine.helpers_engine import make_plan
from sidewinder.model import Device
from sidewinder.transports import client as client_module
from sidewinder.transports.client import AgentClient
from sidewinder.transports.messages import Started

TESTS = Path(__file__).resolve().parents[2]
DIES = f"""\
import sys
sys.path.insert(0, {str(TESTS)!r})
from e2e.helpers_death import arm
from engine.controller_script import main
arm()
main(sys.argv[1])
"""
REAL_START = AgentClient.start


@pytest.fixture
def witness(namespace: Namespace) -> PodWitness:
    return PodWitness(namespace)


@pytest.fixture
def proxy(namespace: Namespace) -> Iterator[ProxyThread]:
    with ProxyThread(*server_of(namespace.cluster.kubeconfig)) as one:
        yield one


@pytest.fixture
def device(namespace: Namespace, proxy: ProxyThread, tmp_path: Path) -> Device:
    volumes = [programs(namespace)]
    connect(namespace.device(volumes=volumes))  # its pod is there
    kubeconfig = behind(proxy.proxy, namespace.cluster.kubeconfig, tmp_path)
    return namespace.device(volumes=volumes, kubeconfig=kubeconfig)


def swallow_the_answer(proxy: ProxyThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start goes through, and nothing comes back from then on."""
    starts = []

    async def start(self: AgentClient, *args: Any) -> Started:
        starts.append(args[:2])
        if len(starts) == 1:
            one = proxy.proxy
            proxy.do(lambda _: setattr(one, "swallow_after_bytes", one.passed_bytes + 1))
        return await REAL_START(self, *args)

    monkeypatch.setattr(AgentClient, "start", start)


def one_execution(sweep: Sweep, witness: PodWitness) -> None:
    until(lambda: witness.executions, "it runs")
    witness.let_go()
    assert set(sweep.wait().values()) == {"ok"}
    (execution,) = witness.executions
    assert execution.complete
    assert sweep.record["metrics"]["start_ns"] == execution.start_ns
    assert sweep.attempts == [(1, "ok")]


def test_a_link_that_breaks_between_the_start_and_its_answer(
    device: Device, witness: PodWitness, proxy: ProxyThread, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallow_the_answer(proxy, monkeypatch)
    sweep = begin([witnessed(device)], device)
    sweep.until_said("nothing was heard of the container")
    proxy.do(lambda one: one.heal())
    one_execution(sweep, witness)


def test_an_answer_that_comes_when_nobody_waits_for_it_any_more(
    device: Device, witness: PodWitness, proxy: ProxyThread, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallow_the_answer(proxy, monkeypatch)
    monkeypatch.setattr(client_module, "CALL_S", 2.0)
    sweep = begin([witnessed(device)], device)
    sweep.until_said("no answer to 'start' within")
    monkeypatch.undo()
    proxy.do(lambda one: one.heal())
    one_execution(sweep, witness)


@pytest.mark.parametrize("moment", ["start:1:before", "start:1:after"])
def test_a_controller_that_dies_there(
    moment: str, device: Device, witness: PodWitness, begin: Begin, tmp_path: Path
) -> None:
    make_plan(tmp_path / "runs", [witnessed(device)], devices=[device], policy=POLICY)
    argv = [sys.executable, "-c", DIES, str(tmp_path / "runs")]
    first = subprocess.run(argv, env={**os.environ, "DIE_AT": moment}, check=False, timeout=120)
    assert first.returncode == -signal.SIGKILL
    one_execution(begin([witnessed(device)], device), witness)
