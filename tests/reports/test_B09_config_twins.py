"""B09, the config's part: no two points share a place; exact duplicates are told with their count."""

from __future__ import annotations

import pytest

from sidewinder import config
from sidewinder.errors import ConfigError


def lab(quants: list[str], *devices: str) -> dict[str, object]:
    return {
        "devices": {name: {} for name in devices},
        "matrix": {"devices": list(devices), "backend": "noop", "parameters": {"quant": quants}},
    }


def test_exact_duplicates_are_told_with_their_count() -> None:
    with pytest.raises(ConfigError, match=r"'Q4_K' \(2 times\)"):
        config.load(lab(["Q4_K", "q4_k", "Q4_K"], "a"))


def test_duplicates_over_blocks_are_told_with_their_count() -> None:
    block = {"devices": "a", "backend": "noop", "threads": [1, 2]}
    with pytest.raises(ConfigError) as caught:
        config.load({"devices": {"a": {}}, "matrix": [block, block, block]})
    assert str(caught.value).count("3 points are the same measurement") == 2


def test_case_only_twins_have_ids_that_differ_on_every_file_system() -> None:
    plan = config.load(lab(["Q4_K", "q4_k"], "a"))
    assert len({run_id.casefold() for run_id in plan.points}) == 2


def test_devices_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(ConfigError, match="'RigA' in case or Unicode form only"):
        config.load(lab(["x"], "RigA", "riga"))
