"""B37: a benchmark tool prints driver lines before its JSON, is cut, crashes at exit, or gives absurd deviations.

Found strictly or not at all: whatever is not clearly the measurement is a failed result with the raw output kept, and
a figure that is not a number is missing, never 0.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sidewinder.errors import ParseError
from sidewinder.model import FailureClass
from workloads.helpers_llama import as_result, captured, parse, point, rows_of


def test_driver_lines_before_the_rows_are_passed_over() -> None:
    assert captured("noise-before-jsonl").stdout.head.startswith(b"ggml_cuda_init")
    assert parse(captured("noise-before-jsonl")).ok


def test_driver_lines_glued_to_a_row_do_not_become_a_row() -> None:
    raw = captured("good")
    glued = raw.stdout.head.replace(b"{", b"ggml: warning {", 1)
    got = parse(raw.__class__("done", 0, 1.0, raw.stdout._replace(head=glued, total_bytes=len(glued)), raw.stderr))
    assert not got.ok
    assert "1 result rows where 2" in (got.message or "")


def test_an_array_instead_of_the_lines_that_were_asked_for_is_no_result() -> None:
    got = parse(captured("noise-before-json-array"))
    assert not got.ok
    assert "0 result rows where 2" in (got.message or "")


def test_json_cut_in_the_middle_with_status_0_is_a_parse_error() -> None:
    assert captured("cut-jsonl").returncode == 0
    with pytest.raises(ParseError, match="line 2"):
        parse(captured("cut-jsonl"))


def test_an_unclosed_array_with_status_1_is_a_failed_result() -> None:
    got = parse(captured("second-model-missing"))
    assert not got.ok
    assert "failed to load model" in (got.message or "")


@pytest.mark.parametrize(("status", "words"), [(139, "signal 11, SIGSEGV"), (-11, "signal 11 (SIGSEGV)")])
def test_whole_rows_and_a_crash_at_exit_are_a_failed_result_with_its_evidence(status: int, words: str) -> None:
    raw = captured("good")
    got = parse(raw.__class__("done", status, 1.0, raw.stdout, raw.stderr))
    assert not got.ok
    assert got.failure_class is FailureClass.MEASUREMENT
    assert words in (got.message or "")
    assert "2 whole result rows, which do not count" in (got.message or "")
    assert not got.metrics
    assert got.backend["build"] == "11669 Debian"


@pytest.mark.parametrize("absurd", [math.nan, None, -3.5, "n/a"])
def test_an_absurd_deviation_is_replaced_by_that_of_the_repeats(absurd: Any) -> None:
    rows = rows_of("good")
    for row in rows:
        row["stddev_ts"] = absurd
    got = parse(as_result(rows))
    assert got.ok
    assert got.metrics["stdev_pct"] == pytest.approx(parse(captured("good")).metrics["stdev_pct"])
    assert len(got.warnings) == 2
    assert json.dumps(absurd) in got.warnings[0]


def test_an_absurd_deviation_of_one_repetition_is_missing() -> None:
    rows = rows_of("good-one-repetition")
    for row in rows:
        row["stddev_ts"] = math.nan
    got = parse(as_result(rows), point(repetitions=1))
    assert got.ok
    assert "stdev_pct" not in got.metrics
