"""A pod that no node has room for: displays say why, nobody waits for it, and in the end it is a failure on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import Namespace, until
from e2e.kubernetes.helpers_pods import connect
from e2e.kubernetes.helpers_sweeps import POLICY, Sweep
from engine.helpers_engine import command, make_plan, record
from logger.test_live_view import Displayed
from sidewinder.engine import Engine
from sidewinder.files import schedule
from sidewinder.model import Device
from sidewinder.transports.kubernetes import KubernetesTransport

TOO_MUCH = "4000"
READY_S = 8.0


def point(device: Device, i: int = 0) -> dict[str, Any]:
    return command("sh", "-c", "echo n=1", metrics={"n": r"n=(\d)"}, device=device.id, parameters={"i": i})


def quota(namespace: Namespace, pods: int) -> None:
    """So many pods may be in the namespace: room that a test can give and take."""
    path = f"/api/v1/namespaces/{namespace.name}/resourcequotas"
    body = {"metadata": {"name": "room"}, "spec": {"hard": {"pods": str(pods)}}}
    namespace.api("DELETE", f"{path}/room")
    namespace.api("POST", path, body)
    until(
        lambda: ((namespace.api("GET", f"{path}/room") or {}).get("status") or {}).get("hard") == {"pods": str(pods)},
        "the quota holds",
    )


class Shown(Sweep):
    """A sweep on our display."""

    def __init__(self, root: Path, plan: Any) -> None:
        self.root, self.plan, self.told = root, plan, Displayed()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(root), plan)
        self.engine.submit([(str(root), run_id) for run_id in plan.points])

    def shown(self, word: str) -> list[str]:
        return [line for line in self.told.screen.lines if line.startswith(word)]


def test_the_display_says_why_and_a_pod_that_is_not_ready_in_time_is_a_failure_on_the_way(
    namespace: Namespace, tmp_path: Path
) -> None:
    device = namespace.device(cpu=TOO_MUCH, ready_timeout_s=READY_S)
    device = replace(device, max_transport_failures=1, recovery_after_s=1.0, give_up_after_s=1.0)
    plan = make_plan(tmp_path / "runs", [point(device)], devices=[device], policy=POLICY)
    sweep = Shown(tmp_path / "runs", plan)
    seen: list[Any] = []
    until(lambda: "Insufficient cpu" in str(seen.append(schedule.read(str(sweep.root))) or seen[-1]), "why, on disk")
    assert seen[-1]["waiting"]["k8s"]["reason"].startswith("Unschedulable: ")
    assert set(sweep.wait().values()) == {"hole"}

    events = [event for event in sweep.told.events if event["kind"] in ("waiting", "waited")]
    assert [event["kind"] for event in events].count("waited") == 2, "one a try"
    assert all(event["ready"] is False for event in events if event["kind"] == "waited")
    assert all(event["device"] == "k8s" for event in events)
    (why,) = {line for line in sweep.shown("WAITS") if "Unschedulable" in line}
    assert "nodes are available" in why
    assert len(sweep.shown("WAITS")) <= 3, "one line a reason, not one a look"
    assert sweep.told.screen.board.row("k8s").waits == ""
    assert schedule.read(str(sweep.root))["waiting"] == {}  # type: ignore[index]
    (retry,) = sweep.shown("RETRY")
    assert f"not ready within {READY_S:g} s: Unschedulable" in retry
    failure = sweep.record["failure"]
    assert failure["class"] == "not_attempted"
    assert "Insufficient cpu" in failure["message"]
    assert [event for event in sweep.ledger if event in ("transport_failure", "probe_failed", "given_up")] == [
        "transport_failure",
        "probe_failed",
        "given_up",
    ]


@pytest.mark.parametrize("had_before", [False, True], ids=["never-had", "gone-in-between"])
def test_a_member_of_a_group_that_there_is_no_room_for_holds_no_turn(
    had_before: bool, namespace: Namespace, tmp_path: Path
) -> None:
    host = Device("host", "local", resource_group="silicon", settings={"state_dir": str(tmp_path / "agent")})
    pod = replace(namespace.device(cpu="100m", memory="64Mi"), resource_group="silicon", max_transport_failures=9)
    if had_before:
        connect(pod)
    else:
        quota(namespace, 0)
    gate = tmp_path / "gate"
    holds = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo n=1"
    first = {**point(host), "command": ("sh", "-c", holds), "priority": 1}
    points = [first, *(point(host, i) for i in range(1, 4)), point(pod)]
    plan = make_plan(tmp_path / "runs", points, devices=[host, pod], policy=POLICY)
    sweep = Shown(tmp_path / "runs", plan)
    sweep.until_begun()
    if (
        had_before
    ):  # it answered, then its pod goes while another member has the turn, and there is no room for a new one
        done = [run_id for (_, run_id), outcome in sweep.told.done.items() if plan.points[run_id].device == "k8s"]
        if not done:
            quota(namespace, 0)
            namespace.delete_pod(grace_s=1)  # not by force: then a lease must prove that nothing runs in it
    gate.touch()
    hosts = {run_id for run_id, one in plan.points.items() if one.device == "host"}
    until(lambda: hosts <= {run_id for _, run_id in sweep.told.done}, f"the host is done: {sweep.told.events[-5:]}")
    if not had_before:
        assert len(sweep.told.done) == len(hosts)
        until(lambda: sweep.shown("WAITS"), "the display says what is waited for")
        assert "quota" in sweep.shown("WAITS")[0]
    quota(namespace, 1)
    assert set(sweep.wait().values()) == {"ok"}
    runs = [record(sweep.root, plan, run_id)["device"]["device_id"] for run_id in plan.points]
    assert sorted(runs) == ["host"] * 4 + ["k8s"]


async def _there(transport: KubernetesTransport) -> bool:
    try:
        return await transport.is_there()
    finally:
        await transport.close()


def test_whether_a_pod_is_there_is_asked_without_making_it(namespace: Namespace) -> None:
    device = namespace.device()
    assert asyncio.run(_there(KubernetesTransport(device))) is False
    assert namespace.pod() is None
    connect(device)
    assert asyncio.run(_there(KubernetesTransport(device))) is True
    other = namespace.device(cpu="250m")
    assert asyncio.run(_there(KubernetesTransport(other))) is False, "it would be replaced first"
    namespace.delete_pod(grace_s=30)
    assert asyncio.run(_there(KubernetesTransport(device))) is False
