"""Promise 2: a result is never retried. A model that does not fit is a result, measured once per invocation.

Shown with a program that says no, and with the evidence of an OOM kill.
"""

from __future__ import annotations

from pathlib import Path

from engine.helpers_engine import make_plan, run
from promises.helpers_promises import Diary, Property, campaigns, here
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.model import AttemptId, Device, Evidence, FailureClass
from sidewinder.testing import World


def test_what_said_no_ran_once_and_what_said_yes_never_again(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    plan = make_plan(root, [diary.point("no", code=3), diary.point("yes")], devices=[here(tmp_path)])
    for invocation in (1, 2):
        told = run(root, plan)
        assert sorted(told.done.values()) == ["failed", "ok"]
        assert diary.began() == {"no": invocation, "yes": 1}, "a failed point is open: once per invocation"


def test_a_model_that_does_not_fit_is_a_failed_result_of_one_attempt() -> None:
    with World([Device("pi", "ssh")]) as world:
        world.queue("big", on="pi")
        world.runs("big")
        world.happens(ev.ResultArrived(AttemptId("big", 1), Evidence("done", -9, oom_kills=1)))
        failure = world.publishes("big").failure
        assert failure is not None
        assert failure.failure_class is FailureClass.MEMORY
        world.expect(do.Ack, "big")
        world.expect(do.ReportDone, "big", outcome="failed")
        world.advance(10_000.0)  # and nothing comes after it


def test_in_campaigns_with_runs_that_end_badly(record_property: Property) -> None:
    campaigns(record_property, "Parse failed", "late event")
