"""The controller is killed while three hosts are in three states, and the same command is started again.

| state of the run when the controller dies | outcome |
| --- | --- |
| running | adopted: the same execution |
| ended on its host, not fetched | fetched: the same execution |
| claimed in the journal, the host has not heard of it | started, once |
| all three, and nobody comes back | every host is quiet after a lease |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from netns.commands import Command, EngineCommand, Settings, SnakemakeCommand, into_three_states
from netns.lab_hosts import LabHosts, until
from plugin.helpers_plugin import Snakemake


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


@pytest.fixture(params=["engine", "snakemake"])
def controller(
    request: pytest.FixtureRequest, lab: LabHosts, tmp_path: Path
) -> Iterator[Callable[[Settings], Command]]:
    made: list[Command] = []

    def make(settings: Settings) -> Command:
        if request.param == "engine":
            made.append(EngineCommand(lab, tmp_path, settings))
        else:
            made.append(SnakemakeCommand(request.getfixturevalue("snakemake"), lab, tmp_path, settings))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def test_the_same_command_again_measures_nothing_twice(
    controller: Callable[[Settings], Command], lab: LabHosts
) -> None:
    command = controller({})
    into_three_states(lab, command)
    command.start()
    until(lambda: lab["h3"].witness.executions, "the claimed one is started")
    until(lambda: lab["h2"].witness.of("h2-2"), "h2 goes on with its next point")
    assert len(lab["h1"].witness.executions) == 1, "the one that runs was waited for"
    for host in lab:
        host.witness.let_go()
    command.finish()
    records = {}
    for path in command.root.glob("records/*/*.json"):
        written = json.loads(path.read_text())
        records[f"{written['device']['device_id']}-{written['knobs']['threads']}"] = written
    assert sorted(records) == ["h1-1", "h1-2", "h2-1", "h2-2", "h3-1", "h3-2"]
    assert {written["status"] for written in records.values()} == {"ok"}
    for host in lab:
        assert [execution.complete for execution in host.witness.executions] == [True, True]
        assert host.witness.overlaps() == []
        until(lambda host=host: host.processes() == [], "nothing is left there")
        for execution in host.witness.executions:
            assert records[execution.run]["metrics"]["start_ns"] == execution.start_ns
    adopted = [run for run, written in records.items() if "taken over" in str(written.get("warnings"))]
    assert sorted(adopted) in (["h1-1", "h2-1"], ["h1-1", "h2-1", "h3-1"])
    until(lambda: not any(host.runners() for host in lab), "no runner is left")


def test_if_nobody_comes_back_every_host_falls_quiet(controller: Callable[[Settings], Command], lab: LabHosts) -> None:
    command = controller({"lease_s": 8.0})
    into_three_states(lab, command)
    until(lambda: not any(host.processes() or host.runners() or host.fronts() for host in lab), "all are quiet")
    assert [[execution.complete for execution in host.witness.executions] for host in lab] == [[False], [True], []]
