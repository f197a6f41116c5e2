"""A user's rule as the engine gets it: command, paths, limits; and what of it has a meaning on this machine only."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.io import flag

from sidewinder.model import Device
from snakemake_executor_plugin_sidewinder.userrule import _bound_to_here, files, task

HERE, FAR = Device("local", "local"), Device("pi5", "ssh")


def job(shell: str = "true", *, pipes: bool = False, **more: Any) -> Any:
    paths = {"input": [], "output": [], "log": [], **more}
    return SimpleNamespace(
        shellcmd=shell, resources={"runtime": 2}, is_pipe_or_service_input=lambda path: pipes, **paths
    )


def test_paths_are_spelt_one_way_and_snakemakes_own_outputs_are_left_to_it() -> None:
    one = job(
        input=["./a.txt", "b//c.txt", "a.txt"],
        output=["out/x", flag("done", "touch"), flag("folder/", "directory")],
        log=["log/../l"],
    )
    found = files(one, 7.0)
    assert found.workdir == os.getcwd()
    assert (found.inputs, found.outputs, found.logs) == (("a.txt", "b/c.txt"), ("out/x", "folder"), ("l",))
    assert found.latency_wait_s == 7.0
    assert found.parents() == ("out",)


def test_the_command_runs_in_place_here_and_by_the_far_machines_own_shell_there() -> None:
    here, far = task(job("sort -T <TBD> x"), HERE), task(job("sort x"), FAR)
    assert here.argv[-1].endswith(f"sort -T {tempfile.gettempdir()} x")
    assert here.cwd == os.getcwd()
    assert os.path.isabs(here.argv[0])
    assert far.argv == ("bash", "-c", "set -euo pipefail; sort x")
    assert far.cwd is None
    assert here.timeout_s == far.timeout_s == 120.0


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (job(input=["/data/x"]), "input /data/x is an absolute path"),
        (job(output=["/data/x"]), "output /data/x is an absolute path"),
        (job(log=["/data/x"]), "log /data/x is an absolute path"),
        (job(input=["a/../../x"]), "input a/../../x leads out of the working directory"),
        (job(input=[".."]), "input .. leads out"),
        (job(input=[flag("x", "storage_object", object())]), "a file of storage()"),
        (job(output=[flag("x", "service")]), "a service()"),
        (job(output=[flag("x", "update")]), "of update()"),
        (job(input=["x"], pipes=True), "reads from a pipe() or service()"),
        (job("sort -T <TBD> x"), "{resources.tmpdir}"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_a_meaning_here_only_is_named(one: Any, why: str) -> None:
    assert why in str(_bound_to_here(one))


@pytest.mark.parametrize(
    "one",
    [
        job(input=["a/../b"], output=["..x/y"], log=["..."]),
        job(output=[flag("x", "temp"), flag("y", "protected"), flag("z", "touch"), flag("d", "directory")]),
        job(input=[flag("x", "ancient")]),
    ],
    ids=["inside", "outputs", "inputs"],
)
def test_what_works_anywhere_is_let_pass(one: Any) -> None:
    assert _bound_to_here(one) is None
