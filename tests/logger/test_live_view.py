"""The whole way of a line: core, engine, executor plugin's log record, board (DOWN, UP, RETRY, MOVED, HOLE)."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from engine.helpers_engine import Told, command, make_plan, run
from engine.helpers_scripted import scripted
from sidewinder.model import Device
from snakemake_executor_plugin_sidewinder.events import emit
from snakemake_logger_plugin_sidewinder.board import Board

PI = Device("pi", "ssh", max_transport_failures=1, recovery_after_s=0.02, give_up_after_s=0.0, failover_to=("spare",))
DEVICES = (PI, Device("spare", "ssh"))


class Screen(logging.Handler):
    def __init__(self):
        super().__init__()
        self.board, self.lines = Board(), []

    def emit(self, record):
        self.lines += [line.text for line in self.board.handle(record.__dict__, 0.0)]

    def starting(self, word):
        return [line for line in self.lines if word in line.split()]


class Displayed(Told):
    """Callbacks as the executor plugin's: each event becomes a log record."""

    def __init__(self):
        super().__init__()
        self.screen, self.logger = Screen(), logging.Logger("live view")
        self.logger.addHandler(self.screen)

    def on_event(self, event):
        super().on_event(event)
        emit(self.logger, event)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def sweep(root, devices, count=2):
    points = [command("true", parameters={"i": i}, device="pi") for i in range(count)]
    plan = make_plan(root, points, devices=devices)
    return run(root, plan, told=Displayed()).screen


def test_a_device_that_dies_is_told_with_what_moved_and_what_is_never_measured(root, monkeypatch):
    machines = scripted(monkeypatch, "pi", "spare")
    machines["pi"].down = True
    screen = sweep(root, DEVICES)
    (down, given_up) = screen.starting("DOWN")
    assert down == "DOWN pi: pi: no route to host"
    assert "taken out of service" in given_up
    assert len(screen.starting("MOVED")) == 2
    assert all(line.startswith("MOVED pi i=") and "to spare as" in line for line in screen.starting("MOVED"))
    assert not any("no route" in line for line in screen.starting("MOVED")), "why was told with DOWN, once"
    holes = [line for line in screen.starting("HOLE") if " pi i=" in line]
    assert len(holes) == 2
    assert all(line.endswith("moved to spare, stays open") for line in holes)
    assert len([line for line in screen.lines if "spare i=" in line and "done" in line]) == 2
    assert (screen.board.row("spare").planned, screen.board.over, screen.board.planned) == (2, 4, 4)
    (closing,) = screen.board.closing(0.0)
    assert closing.text.startswith("0 of 2 points are measured: 0 measured in")
    assert closing.text.endswith("2 moved to another device (2 measured there)")


def test_a_retry_and_a_recovery_name_the_device(root, monkeypatch):
    machine = scripted(monkeypatch, "pi")["pi"]
    machine.down = True
    machine.on["connect"] = lambda: setattr(machine, "down", machine.asked["connect"] < 3)
    screen = sweep(root, [replace(PI, give_up_after_s=None, failover_to=())])
    assert screen.starting("RETRY")[0].startswith("RETRY pi i=")
    assert screen.starting("UP")[0].startswith("UP pi: a run came back after")
    assert screen.board.row("pi").state == "up"
    assert screen.board.row("pi").ok == 2
