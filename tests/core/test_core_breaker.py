"""The breaker on its own (M-115), with time passed in."""

from __future__ import annotations

from sidewinder.core.breaker import Breaker, Closed, HalfOpen, Open, Probing, Trial


def opened(at_s: float = 100.0) -> Breaker:
    breaker = Breaker(3, 180.0)
    for i in range(3):
        breaker.failed("p", "reset", at_s - 2 + i)
    return breaker


def test_it_opens_at_the_third_failure_in_a_row() -> None:
    breaker = Breaker(3, 180.0)
    assert [breaker.failed("p", "reset", t) for t in (1.0, 2.0)] == [False, False]
    assert breaker.in_row == 2
    assert breaker.failed("p", "reset", 3.0)
    assert breaker.state == Open(183.0, "reset")
    assert (breaker.trips, breaker.failures, breaker.down_since_s) == (1, 3, 3.0)


def test_a_completed_run_between_failures_starts_the_count_again() -> None:
    breaker = Breaker(3, 180.0)
    breaker.failed("p", "x", 1.0)
    breaker.failed("p", "x", 2.0)
    assert not breaker.completed()
    assert not breaker.failed("p", "x", 3.0)
    assert breaker.in_row == 1
    assert breaker.failures == 3, "failures that never tripped anything are counted too"


def test_stragglers_of_other_slots_do_not_restart_the_cooldown() -> None:
    breaker = opened()
    assert not breaker.failed("q", "reset", 150.0)
    assert breaker.state == Open(280.0, "reset")


def test_probe_then_one_trial_then_closed() -> None:
    breaker = opened()
    breaker.probe()
    assert breaker.state == Probing("reset")
    breaker.probe_answered(True, "", 281.0)
    assert breaker.state == HalfOpen("reset")
    breaker.try_with("p")
    assert breaker.state == Trial("p", "reset")
    assert breaker.completed()
    assert breaker.state == Closed(0)
    assert (breaker.recoveries, breaker.down_since_s) == (1, None)


def test_failed_probes_restart_the_cooldown_and_keep_down_since() -> None:
    breaker = opened()
    for at_s in (280.0, 460.0, 640.0):
        breaker.probe()
        breaker.probe_answered(False, "no route", at_s)
        assert breaker.state == Open(at_s + 180.0, "no route")
        assert breaker.down_since_s == 100.0
    assert breaker.failures == 6
    assert breaker.trips == 1


def test_a_failed_trial_opens_again_and_keeps_down_since() -> None:
    breaker = opened()
    breaker.probe()
    breaker.probe_answered(True, "", 281.0)
    breaker.try_with("p")
    assert not breaker.failed("q", "reset", 285.0), "another point's failure is not the trial's"
    assert breaker.failed("p", "reset", 290.0)
    assert breaker.state == Open(470.0, "reset")
    assert breaker.down_since_s == 100.0


def test_a_trial_that_says_nothing_leaves_the_place_to_another() -> None:
    breaker = opened()
    breaker.probe()
    breaker.probe_answered(True, "", 281.0)
    breaker.try_with("p")
    breaker.try_another()
    assert breaker.state == HalfOpen("reset")
