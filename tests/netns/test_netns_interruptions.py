"""The whole lab without power, and a controller that is away for a while.

| what happens | outcome |
| --- | --- |
| controller killed, all hosts without power: one ran, one ended, one was claimed | measured again, fetched, started |
| the controller sleeps for longer than the lease | every host is quiet; it wakes up and measures again |
"""

from __future__ import annotations

import signal
from pathlib import Path

from netns.commands import EngineCommand, into_three_states
from netns.lab_hosts import LabHosts, until


def test_the_power_of_the_whole_lab_is_cut(lab: LabHosts, tmp_path: Path) -> None:
    command = EngineCommand(lab, tmp_path, {})
    try:
        into_three_states(lab, command)
        for host in lab:
            host.power_off()
        for host in lab:
            host.power_on()
            host.witness.let_go()
        command.start()
        command.finish()
    finally:
        command.kill()
    found = {host.name: sorted((one.run, one.complete) for one in host.witness.executions) for host in lab}
    assert found == {
        "h1": [("h1-1", False), ("h1-1", True), ("h1-2", True)],
        "h2": [("h2-1", True), ("h2-2", True)],
        "h3": [("h3-1", True), ("h3-2", True)],
    }


def test_a_controller_that_sleeps_for_longer_than_the_lease(lab: LabHosts, tmp_path: Path) -> None:
    """A laptop whose lid is shut for a while."""
    command = EngineCommand(lab, tmp_path, {"lease_s": 4.0})
    try:
        command.start()
        until(lambda: all(host.witness.executions for host in lab), "all three run")
        command.signal(signal.SIGSTOP)
        until(lambda: not any(host.processes() or host.runners() for host in lab), "all are quiet")
        for host in lab:
            host.witness.let_go()
        command.signal(signal.SIGCONT)
        command.finish()
    finally:
        command.kill()
    for host in lab:
        of_first = host.witness.of(f"{host.name}-1")
        assert [execution.complete for execution in of_first] == [False, True]
        assert [execution.complete for execution in host.witness.of(f"{host.name}-2")] == [True]
        assert host.witness.overlaps() == []
