"""The table of deaths, over statuses of pods that died on a real cluster (1.36; tests/data/pod_deaths.json)."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sidewinder.model import Failure, FailureClass
from sidewinder.transports.kubernetes_deaths import BY_CAUSE, TABLE, Life, death_of
from sidewinder.transports.kubernetes_watch import Seen

DIED: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "pod_deaths.json").read_text())
DOC = (Path(__file__).parents[2] / "docs" / "kubernetes.md").read_text(encoding="utf-8")


def seen(name: str) -> Seen:
    one = DIED[name]
    return Seen(copy.deepcopy(one["pod"]), one["is_gone"], one["is_gone"])


def death(what: Seen | None, name: str, **known: Any) -> Failure | None:
    return death_of(Life.of(DIED[name]["life"]), what, pod="sidewinder-k8s", container="agent", **known)


def cause(what: Seen | None, name: str, **known: Any) -> tuple[str, str]:
    found = death(what, name, **known)
    assert found is not None
    assert found.failure_class is BY_CAUSE[found.evidence["cause"]].failure_class
    return found.evidence["cause"], found.evidence["proof"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("evicted", "evicted"),
        ("preempted", "preempted"),
        ("deleted", "deleted"),
        ("out_of_memory", "out_of_memory"),
        ("out_of_memory_and_started_again", "out_of_memory"),
        ("storage_limit", "storage_limit"),
        ("storage_limit_and_removed", "storage_limit"),
        ("restarted", "restarted"),
    ],
)
def test_what_was_seen_on_a_cluster(name: str, expected: str) -> None:
    assert cause(seen(name), name) == (expected, "container")


@pytest.mark.parametrize("name", ["running", "evicted_and_still_running", "deleted_and_still_running"])
def test_what_runs_is_not_dead_whatever_was_ordered(name: str) -> None:
    assert death(seen(name), name) is None


def test_a_front_that_was_killed_proves_it_only_with_the_pod() -> None:
    """A front may be killed alone, for the memory that its run took."""
    name = "evicted_and_still_running"
    assert cause(seen(name), name, front_was_killed=True) == ("evicted", "front")
    assert death(seen("running"), "running", front_was_killed=True) is None
    gone = seen("running")._replace(is_gone=True)
    assert cause(gone, "running", front_was_killed=True) == ("deleted", "front"), "by force: nothing else is ever said"
    assert death(gone, "running") is None, "gone from the API server is not gone from its node"


def test_a_lease_that_is_over_proves_it_and_the_record_says_so() -> None:
    gone = seen("running")._replace(is_gone=True)
    assert cause(gone, "running", silent_s=70.0) == ("deleted", "lease")
    assert cause(None, "running", silent_s=70.0) == ("vanished", "lease"), "nobody saw anything of it"
    found = death(gone, "running", silent_s=70.4)
    assert found is not None
    assert "70 s" in found.message


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("EvictionByEvictionAPI", "evicted"),
        ("PreemptionByScheduler", "preempted"),
        ("DeletionByTaintManager", "tainted"),
        ("TerminationByKubelet", "node_pressure"),
        ("DeletionByPodGC", "node_gone"),
        ("OfTheYear2030", "disrupted"),
    ],
)
def test_each_disruption_has_its_cause(reason: str, expected: str) -> None:
    one = seen("evicted")
    (condition,) = [one for one in one.pod["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    condition["reason"] = reason
    assert cause(one, "evicted") == (expected, "container")
    condition["status"] = "False"
    assert cause(one, "evicted") == ("deleted", "container"), "a condition that does not hold says nothing"


def test_an_eviction_of_a_node_in_need_is_not_the_runs_fault() -> None:
    """Phase and reason are the same as over the pod's own limit; the condition is what differs."""
    one = seen("storage_limit")
    one.pod["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    )
    assert cause(one, "storage_limit") == ("node_pressure", "container")


def _ended(one: Seen, key: str = "state") -> dict[str, Any]:
    found: dict[str, Any] = one.pod["status"]["containerStatuses"][0][key]["terminated"]
    return found


@pytest.mark.parametrize("name", ["evicted", "preempted", "deleted"])
def test_an_old_oom_does_not_explain_a_later_end(name: str) -> None:
    """containerd says OOMKilled of a container in which a run was killed for memory hours ago."""
    one = seen(name)
    _ended(one)["reason"] = "OOMKilled"
    assert cause(one, name)[0] == name
    _ended(one)["exitCode"] = 137
    assert cause(one, name)[0] == name


def test_an_oom_counts_by_exit_code_too() -> None:
    one = seen("out_of_memory")
    _ended(one)["exitCode"] = 143
    assert cause(one, "out_of_memory")[0] == "restarted", "its first process was asked to end, and did"


@pytest.mark.parametrize("reason", ["Unknown", "ContainerStatusUnknown"])
def test_a_node_that_lost_its_power(reason: str) -> None:
    one = seen("restarted")
    _ended(one, "lastState").update(reason=reason, exitCode=255)
    assert cause(one, "restarted") == ("node_restarted", "container")


def test_what_is_said_of_the_pod_is_said_of_its_last_life() -> None:
    """A container that was restarted, and later evicted: the first life was not evicted."""
    one = seen("out_of_memory_and_started_again")
    one.pod["metadata"]["deletionTimestamp"] = "2026-12-01T16:00:00Z"
    one.pod["status"]["conditions"].append(
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    )
    assert cause(one, "out_of_memory_and_started_again") == ("out_of_memory", "container")


def test_a_life_two_restarts_ago_is_over_without_a_name() -> None:
    one = seen("restarted")
    status = one.pod["status"]["containerStatuses"][0]
    status["lastState"]["terminated"]["containerID"] = "containerd://another"
    assert cause(one, "restarted") == ("restarted", "container")
    status["state"]["running"]["startedAt"] = "2026-12-01T00:00:00Z"
    assert death(one, "restarted") is None, "an old status, of a life before"


def test_another_pod_of_that_name_proves_nothing() -> None:
    one = seen("running")
    one.pod["metadata"]["uid"] = "another"
    assert death(one, "running") is None


def test_a_result_names_the_limit_that_it_met() -> None:
    memory, storage = death(seen("out_of_memory"), "out_of_memory"), death(seen("storage_limit"), "storage_limit")
    assert memory is not None
    assert storage is not None
    assert (memory.failure_class, storage.failure_class) == (FailureClass.MEMORY, FailureClass.MEASUREMENT)
    assert "memory 96Mi" in memory.message
    assert "ephemeral-storage 64Mi" in storage.message
    assert "`ephemeral_storage`" in storage.message


def test_the_docs_show_the_table() -> None:
    section = DOC[DOC.index("## How it dies") : DOC.index("## What the account may do")]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `(\w+)` \| (\w+) \|", section, flags=re.MULTILINE)
    assert rows == [(row.what, row.evidence, row.cause, row.failure_class.value) for row in TABLE]
