"""B03, the config's part: hostile values arrive in the plan as they were written and never in a name."""

from __future__ import annotations

import re

from sidewinder import config

PROMPTS = ["a b", "x; touch /tmp/PWNED", "$(id)", "`id`", "*", "-rf", "line1\nline2", ""]


def test_values_stay_as_they_are_and_run_ids_are_safe() -> None:
    plan = config.load(
        {
            "devices": {"a": {}},
            "matrix": {
                "devices": "a",
                "backend": "command",
                "command": ["echo", "{prompt}"],
                "metrics": "json",
                "parameters": {"prompt": PROMPTS},
            },
        }
    )
    assert [point.parameters["prompt"] for point in plan.points.values()] == PROMPTS
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]*[a-z0-9]", run_id) for run_id in plan.points)
