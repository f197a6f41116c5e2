"""What backend `command` reads out of a program's output, and what it refuses to read."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sidewinder.errors import ParseError
from sidewinder.model import Output, Point, RawResult, Task
from sidewinder.workloads.command import Command

POINT = Point("r-1", "e", "local", "command", "throughput", command=("prog",))
TASK = Task(argv=("prog",))


def raw(stdout=b"", stderr=b"", returncode=0):
    whole = stdout if isinstance(stdout, Output) else Output(stdout, b"", len(stdout))
    return RawResult("done", returncode, 0.1, whole, Output(stderr, b"", len(stderr)))


def measure(metrics, stdout, **more):
    return Command().parse(replace(POINT, metrics=metrics), TASK, raw(stdout, **more))


@pytest.mark.parametrize(
    ("metrics", "stdout", "expected"),
    [
        ({"n": r"events:\s+(\S+)"}, b"events:  12\n", {"n": 12}),
        ({"n": r"events:\s+(\S+)"}, b"events: 1.5e3\r\n", {"n": 1500.0}),
        ({"n": r"^rate (\d+)$"}, b"rate 1\nrate 2\nend\n", {"n": 2}),  # the last one is the final figure
        ({"n": r"n=(\d+)"}, b"\xff\xfe n=3 \xc3", {"n": 3}),
        ({"a": r"a=(\d+)", "b": r"b=(\d+)"}, b"a=1 b=2", {"a": 1, "b": 2}),
        ("json", b'{"a": 1, "b": {"c": 2.5}, "s": "x", "t": true, "z": null}', {"a": 1, "b.c": 2.5}),
        ("json", b'{\n "a": 1\n}\n', {"a": 1}),
        ("json", b'load: driver 1.2\n{"a": 1}\n{"a": 2}\nbye\n', {"a": 2}),
        (None, b"whatever", {}),
    ],
)
def test_numbers_by_name(metrics, stdout, expected):
    measurement = measure(metrics, stdout)
    assert measurement.ok, measurement.message
    assert measurement.metrics == expected


def test_a_list_of_numbers_is_the_samples_behind_a_metric():
    measurement = measure("json", b'{"tps": 2.0, "runs": {"tps": [1.5, 2.5]}}')
    assert measurement.metrics == {"tps": 2.0}
    assert measurement.samples == {"runs.tps": [1.5, 2.5]}


@pytest.mark.parametrize(
    ("metrics", "stdout", "says"),
    [
        ({"n": r"n=(\d+)", "m": r"m=(\d+)"}, b"n=1", "printed no m"),
        ({"n": r"n=(\d+)"}, b"", "printed no n"),
        ({"n": r"n=(\S+)"}, b"n=nan", "n = nan"),
        ({"n": r"n=(\S+)"}, b"n=-inf", "n = -inf"),
        ("json", b'{"a": NaN}', "a = nan"),
        ("json", b'{"a": "text"}', "holds no number"),
    ],
)
def test_output_that_is_no_result(metrics, stdout, says):
    measurement = measure(metrics, stdout)
    assert not measurement.ok
    assert says in measurement.message
    assert all(math.isfinite(value) for value in measurement.metrics.values())


@pytest.mark.parametrize(
    ("metrics", "stdout"),
    [
        ({"n": r"n=(\S+)"}, b"n=fast"),
        ("json", b"no json at all"),
        ("json", b'{"a": 1}\n{"a": 2, "b"'),  # cut: the earlier line is an earlier figure, not the result
        ("json", b"[1, 2]"),
    ],
)
def test_output_that_cannot_be_read_is_a_parse_error(metrics, stdout):
    with pytest.raises(ParseError):
        measure(metrics, stdout)


def test_a_line_torn_by_the_cap_is_not_read():
    # the middle was dropped inside "n=123456": neither 123 nor 456 is the figure
    torn = Output(b"n=7\nn=123", b"456\nend\n", 100_000)
    measurement = measure({"n": r"n=(\d+)"}, torn)
    assert measurement.metrics == {"n": 7}
    assert "not searched" in measurement.warnings[0]
    with pytest.raises(ParseError):
        measure("json", Output(b'{"a": 1', b"23}\n", 100_000))


@pytest.mark.parametrize(
    ("returncode", "stderr", "says"),
    [
        (3, b"warming up\nerror: no such model\n\n", "exit status 3: error: no such model"),
        (-11, b"", "killed by signal 11 (SIGSEGV), nothing on stderr"),
        (1, b"\xff bad", "exit status 1: \ufffd bad"),
    ],
)
def test_a_non_zero_end_is_a_failure_whatever_was_printed(returncode, stderr, says):
    measurement = measure({"n": r"n=(\d+)"}, b"n=1", returncode=returncode, stderr=stderr)
    assert (measurement.ok, measurement.message) == (False, says)
    assert not measurement.metrics
