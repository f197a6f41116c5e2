"""The failure table: evidence has one class, every class one rule, and the rules are those of the design."""

from __future__ import annotations

import pathlib
import re

import pytest

from sidewinder.core.policy import TABLE, BreakerEffect, PointEffect, classify, describe
from sidewinder.model import Evidence, FailureClass

F = FailureClass


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param(Evidence("done", 0), None, id="ended well: the workload may parse it"),
        pytest.param(Evidence("done", 0, oom_kills=1), None, id="a helper was killed, the run still ended well"),
        pytest.param(Evidence("done", 1), F.MEASUREMENT, id="non-zero exit"),
        pytest.param(Evidence("done", -11), F.MEASUREMENT, id="crash by a signal"),
        pytest.param(Evidence("done", -9), F.MEASUREMENT, id="SIGKILL alone says nothing about memory"),
        pytest.param(Evidence("done", -9, oom_kills=0), F.MEASUREMENT, id="SIGKILL and the cgroup counted nothing"),
        pytest.param(Evidence("done", -9, oom_kills=1), F.MEMORY, id="SIGKILL and an OOM kill counted"),
        pytest.param(Evidence("done", 1, oom_kills=2), F.MEMORY, id="a child was OOM-killed and the run gave up"),
        pytest.param(Evidence("timeout", oom_kills=1), F.MEMORY, id="hung after an OOM kill"),
        pytest.param(Evidence("done", 143), F.PREEMPTED, id="SIGTERM that a shell reported"),
        pytest.param(Evidence("done", -15), F.PREEMPTED, id="SIGTERM"),
        pytest.param(Evidence("done", None), F.TRANSPORT, id="exit status unknown is not failed"),
        pytest.param(Evidence("timeout"), F.MEASUREMENT, id="its own time limit"),
        pytest.param(Evidence("spawn_failed", error="not_found"), F.MEASUREMENT, id="no such command"),
        pytest.param(Evidence("spawn_failed", error="disk_full"), F.DEVICE, id="no room to start it"),
        pytest.param(Evidence("refused", error="disk_full"), F.DEVICE, id="no room on the device"),
        pytest.param(Evidence("refused", error="file_missing"), F.CONFIG, id="the model is not there"),
        pytest.param(Evidence("refused", error="digest_mismatch"), F.CONFIG, id="another model is there"),
        pytest.param(Evidence("refused", error="axis_not_applied"), F.CONFIG, id="the axis does not exist there"),
        pytest.param(Evidence("refused", error="not_idle"), F.TRANSPORT, id="somebody else works on the device"),
        pytest.param(
            Evidence("refused", error="input_lost"), F.TRANSPORT, id="what was brought there is gone or damaged"
        ),
        pytest.param(Evidence("lease_expired"), F.TRANSPORT, id="the device stopped it while we were away"),
        pytest.param(Evidence("stopped"), F.TRANSPORT, id="an earlier controller stopped it"),
        pytest.param(
            Evidence("done", 0, wrong_spec="its quota is another"), F.DEVICE, id="another device than asked for"
        ),
        pytest.param(
            Evidence("done", -9, oom_kills=1, wrong_spec="less memory"), F.DEVICE, id="it died of another device"
        ),
        pytest.param(
            Evidence("done", 0, wrong_spec="another quota", limits_changed="changed"),
            F.DEVICE,
            id="it was another device before that was changed",
        ),
        pytest.param(Evidence("on_fire"), F.INTERNAL, id="a state nobody knows is our bug"),
    ],
)
def test_evidence_has_a_class(evidence: Evidence, expected: FailureClass | None) -> None:
    assert classify(evidence) is expected
    if expected is not None:
        assert describe(evidence, expected)


def test_a_message_never_decides() -> None:
    assert classify(Evidence("done", 1, detail="Out of memory: killed process; connection reset")) is F.MEASUREMENT


def test_the_sentence_for_a_person_is_the_devices_own_where_there_is_one() -> None:
    assert describe(Evidence("refused", error="file_missing", detail="model q4 is not at /m"), F.CONFIG).startswith(
        "model"
    )
    assert "exit code 3" in describe(Evidence("done", 3), F.MEASUREMENT)
    assert "signal 11" in describe(Evidence("done", -11), F.MEASUREMENT)
    assert "2 OOM kill" in describe(Evidence("done", -9, oom_kills=2), F.MEMORY)


def test_every_class_has_a_rule() -> None:
    assert set(TABLE) == set(FailureClass)


@pytest.mark.parametrize(
    ("failure_class", "point", "breaker"),
    [
        (F.TRANSPORT, PointEffect.RETRY, BreakerEffect.FAILURE),
        (F.PREEMPTED, PointEffect.REQUEUE, BreakerEffect.NONE),
        (F.MEMORY, PointEffect.RESULT, BreakerEffect.ALIVE),
        (F.MEASUREMENT, PointEffect.RESULT, BreakerEffect.ALIVE),
        (F.PARSE, PointEffect.RESULT, BreakerEffect.ALIVE),
        (F.CONFIG, PointEffect.RESULT, BreakerEffect.NONE),
        (F.DEVICE, PointEffect.HOLE, BreakerEffect.QUARANTINE),
        (F.CANCELLED, PointEffect.DROP, BreakerEffect.NONE),
        (F.INTERNAL, PointEffect.RAISE, BreakerEffect.NONE),
    ],
)
def test_the_rules_are_those_of_the_design(
    failure_class: FailureClass, point: PointEffect, breaker: BreakerEffect
) -> None:
    assert TABLE[failure_class].point is point
    assert TABLE[failure_class].breaker is breaker


def test_the_design_names_the_same_classes() -> None:
    design = (pathlib.Path(__file__).parents[2] / "docs" / "design.md").read_text(encoding="utf-8")
    section = design[design.index("## 3. Failure classes") : design.index("## 4.")]
    named = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    assert named == {c.value for c in FailureClass} - {F.NOT_ATTEMPTED.value}
