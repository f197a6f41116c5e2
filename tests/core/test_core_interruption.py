"""A run that its machine slept through, or whose clock was set meanwhile, is no result, whatever it printed."""

from __future__ import annotations

import pytest

from sidewinder.agent.clocks import stamp, stamps_between
from sidewinder.core.policy import classify, describe, interruption
from sidewinder.model import Evidence, FailureClass

F = FailureClass
S = 10**9
RESIZED = "its limits were changed during the run (CPU quota 0.5 -> 0.25 cores)"


def ran(
    *, wall_s: float, awake_s: float, boot_s: float | None = None, code: int | None = 0, **more: object
) -> Evidence:
    """The evidence of a run over which the device's clocks went on by so much."""
    start = {"monotonic_ns": 5 * S, "wall_ns": 1_700_000_000 * S, "boottime_ns": 905 * S}
    end = {
        "monotonic_ns": start["monotonic_ns"] + int(awake_s * S),
        "wall_ns": start["wall_ns"] + int(wall_s * S),
        "boottime_ns": start["boottime_ns"] + int((awake_s if boot_s is None else boot_s) * S),
    }
    told = stamps_between(start, end)
    slept, step = told["suspended_s"], told["clock_step_s"]
    assert isinstance(slept, float)
    assert isinstance(step, float)
    return Evidence("done", code, duration_s=awake_s, suspended_s=slept, clock_step_s=step)._replace(**more)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        pytest.param(ran(wall_s=10, awake_s=10), None, id="clocks that agree"),
        pytest.param(ran(wall_s=40, awake_s=10, boot_s=40), F.PREEMPTED, id="a lid closed for half a minute"),
        pytest.param(ran(wall_s=10.3, awake_s=10, boot_s=10.3), F.PREEMPTED, id="a short sleep"),
        pytest.param(ran(wall_s=10.05, awake_s=10, boot_s=10.05), None, id="50 ms are no sleep"),
        pytest.param(ran(wall_s=3610, awake_s=10), F.PREEMPTED, id="an hour forward"),
        pytest.param(ran(wall_s=-3590, awake_s=10), F.PREEMPTED, id="an hour back"),
        pytest.param(ran(wall_s=10.2, awake_s=10), F.PREEMPTED, id="ntpd steps from 128 ms on"),
        pytest.param(ran(wall_s=10.05, awake_s=10), None, id="what nobody steps by"),
        pytest.param(ran(wall_s=3600 * 1.0005, awake_s=3600), None, id="an hour slewed by 500 ppm"),
        pytest.param(ran(wall_s=3600 * 0.9995, awake_s=3600), None, id="the same, slowed down"),
        pytest.param(ran(wall_s=3602, awake_s=3600), F.PREEMPTED, id="2 s in an hour are more than a slew"),
        pytest.param(
            ran(wall_s=40, awake_s=10, boot_s=40, code=1), F.PREEMPTED, id="it failed, perhaps for that reason"
        ),
        pytest.param(ran(wall_s=40, awake_s=10, boot_s=40, code=None), F.PREEMPTED, id="without an exit status"),
        pytest.param(
            ran(wall_s=40, awake_s=10, boot_s=40, code=-9, oom_kills=1), F.MEMORY, id="a counted OOM kill stays"
        ),
        pytest.param(
            ran(wall_s=40, awake_s=10, boot_s=40, state="timeout"), F.MEASUREMENT, id="a time-out counts no sleep"
        ),
        pytest.param(Evidence("done", 0), None, id="a device that gave no stamps"),
        pytest.param(Evidence("done", 0, limits_changed=RESIZED), F.PREEMPTED, id="its limits were changed"),
        pytest.param(Evidence("timeout", limits_changed=RESIZED), F.PREEMPTED, id="half the quota takes twice as long"),
        pytest.param(
            Evidence("done", -9, oom_kills=1, limits_changed=RESIZED), F.PREEMPTED, id="nobody asked for that limit"
        ),
        pytest.param(Evidence("stopped", limits_changed=RESIZED), F.TRANSPORT, id="stopped is stopped"),
    ],
)
def test_the_clocks_of_a_run_decide_before_its_output(evidence: Evidence, expected: FailureClass | None) -> None:
    assert classify(evidence) is expected


def test_the_sentence_says_what_happened_and_how_much() -> None:
    slept = ran(wall_s=41.2, awake_s=10, boot_s=41.2)
    assert describe(slept, F.PREEMPTED).startswith("the machine slept for 31.2 s during the run")
    stepped = ran(wall_s=-3590, awake_s=10)
    assert describe(stepped, F.PREEMPTED).startswith("the machine's clock was set by -3600.000 s during the run:")
    resized = Evidence("done", 0, detail="something else", limits_changed=RESIZED)
    assert describe(resized, F.PREEMPTED) == f"{RESIZED}: what it measured is not trusted"


def test_the_sentence_of_a_sigterm_stays_its_own() -> None:
    assert "signal 15" in describe(Evidence("done", -15), F.PREEMPTED)


def test_without_a_clock_that_counts_sleep_both_are_one() -> None:
    start = {"monotonic_ns": 0, "wall_ns": 0}
    told = stamps_between(start, {"monotonic_ns": 10 * S, "wall_ns": 40 * S})
    assert "suspended_s" not in told
    assert told["clock_step_s"] == 30
    evidence = Evidence("done", 0, duration_s=10, clock_step_s=30)
    assert classify(evidence) is F.PREEMPTED
    assert "cannot be told apart" in str(interruption(evidence))


def test_the_readings_of_a_stamp_are_one_instant() -> None:
    one, other = stamp(), stamp()
    assert 0 <= one["within_ns"] < 100_000_000
    told = stamps_between(one, other)
    assert abs(float(str(told["clock_step_s"]))) < 0.1
    assert abs(float(str(told["suspended_s"]))) < 0.1


def test_a_stamp_that_was_torn_apart_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who loses the processor between two clocks for a second must not see a clock step by a second."""
    now = [0]
    pauses = iter([S, 0, 0, 0, 0, 0, 0, 0, 0, 0])

    def monotonic_ns() -> int:
        now[0] += 1000
        return now[0]

    def time_ns() -> int:
        now[0] += next(pauses)
        return 7 * S + now[0]

    monkeypatch.setattr("sidewinder.agent.clocks.time.monotonic_ns", monotonic_ns)
    monkeypatch.setattr("sidewinder.agent.clocks.time.time_ns", time_ns)
    taken = stamp()
    assert taken["within_ns"] < 100_000
    assert abs(taken["wall_ns"] - taken["monotonic_ns"] - 7 * S) < 100_000
