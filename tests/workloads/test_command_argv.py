"""The argv of backend `command`: no shell, one pass, byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidewinder.errors import ConfigError
from sidewinder.model import Device, Found, Point
from sidewinder.workloads.command import Command

DEVICE = Device("local", "local")
POINT = Point("r-1", "e", "local", "command", "throughput", command=("prog",))


def task(point: Point):
    return Command().build_task(point, DEVICE, Found())


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_a_value_arrives_as_it_is_whatever_it_holds(value):
    point = replace(POINT, command=("prog", "{v}", "a{v}b"), parameters={"v": value})
    assert task(point).argv == ("prog", value, f"a{value}b")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("--threads={threads}", "--threads=4"),
        ("{{threads}}", "{threads}"),
        ("{print $1}", "{print $1}"),
        ("{}", "{}"),
        ('{"n": {threads}}', '{"n": 4}'),
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ("{rate}", "1e-05"),
        ("{on}", "true"),
        ("{many}", "[1,2]"),
        ("{odd}", "{threads}"),  # what a value holds is not looked at again
        ("", ""),
        ("{n-gpu}", "8"),
        ("{{n-gpu}}", "{n-gpu}"),
        ("{a-b}", "{a-b}"),  # no parameter of this name: somebody else's braces
        ("{{a-b}}", "{{a-b}}"),
    ],
)
def test_placeholders(argument, expected):
    parameters = {"rate": 1e-5, "on": True, "many": [1, 2], "odd": "{threads}", "n-gpu": 8}
    assert task(replace(POINT, command=("prog", argument), threads=4, parameters=parameters)).argv[1] == expected


@pytest.mark.parametrize(
    ("change", "key", "says"),
    [
        ({"command": ()}, "command", "argv"),
        ({"command": ("",)}, "command[0]", "empty"),
        ({"command": ("p", "{thread}")}, "command[1]", "'thread'"),
        ({"command": ("p", "{threads}")}, "command[1]", "sets no threads"),
        ({"command": ("p", "{v}"), "parameters": {"v": "a\0b"}}, "command[1]", "NUL"),
        ({"command": ("p", "{v}"), "parameters": {"v": "\ud800"}}, "command[1]", "surrogate"),
        ({"metrics": {"m": "no group"}}, "metrics.m", "one group"),
        ({"metrics": {"m": "(a)(b)"}}, "metrics.m", "has 2"),
        ({"metrics": {"m": "(a"}}, "metrics.m", "not a regular expression"),
        ({"metrics": "yaml"}, "metrics", "json"),
        ({"extra": {"timeout_s": 0}}, "extra.timeout_s", "above 0"),
        ({"extra": {"timeout_s": float("inf")}}, "extra.timeout_s", "above 0"),
        ({"extra": {"timeout_s": True}}, "extra.timeout_s", "above 0"),
        ({"extra": {"timout_s": 5}}, "extra.timout_s", "knows cwd, env, timeout_s"),
        ({"extra": {"env": {"A=B": "1"}}}, "extra.env", "environment variable"),
        ({"extra": {"cwd": ""}}, "extra.cwd", "path"),
    ],
)
def test_what_can_never_work_is_refused_by_key(change, key, says):
    with pytest.raises(ConfigError, match=says) as caught:
        Command().validate(replace(POINT, **change))
    assert caught.value.key == key


def test_env_cwd_and_timeout():
    extra = {"timeout_s": 7, "env": {"OMP_NUM_THREADS": "{threads}", "N": 3}, "cwd": "/data/{mode}"}
    made = task(replace(POINT, threads=2, extra=extra))
    assert made.env == {"OMP_NUM_THREADS": "2", "N": "3"}
    assert (made.cwd, made.timeout_s) == ("/data/throughput", 7.0)


def test_an_axis_of_the_device_must_be_applied_or_the_run_is_refused():
    made = task(replace(POINT, governor="performance", prepare={"settle_s": 1}))
    assert made.require == ("governor",)
    assert json.loads(json.dumps(made.prepare)) == {"settle_s": 1, "governor": "performance"}
