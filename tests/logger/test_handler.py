"""The log handler: what Snakemake's records become on a person's terminal. Errors are never hidden."""

from __future__ import annotations

import io
import logging
import sys
from types import SimpleNamespace

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_sidewinder import LogHandler, LogHandlerSettings


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    """A handler that writes to a string; ``say(...)`` sends one record through it."""

    def make(*, quiet: tuple = (), dryrun: bool = False, **settings: object) -> SimpleNamespace:
        stream = io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        common = SimpleNamespace(
            printshellcmds=False, nocolor=True, quiet=quiet, debug_dag=False, verbose=False, show_failed_logs=False,
            stdout=False, dryrun=dryrun,
        )  # fmt: skip
        handler = LogHandler(common, LogHandlerSettings(**settings))

        def say(message: str | None = None, level: int = logging.INFO, **extra: object) -> str:
            before = len(stream.getvalue())
            record = logging.LogRecord("snakemake", level, __file__, 1, message, None, None)
            record.__dict__.update(extra)
            handler.handle(record)
            return stream.getvalue()[before:]

        return SimpleNamespace(say=say, handler=handler, text=stream.getvalue)

    return make


PLAN = {"event": "sidewinder", "kind": "plan", "devices": {"local": {"planned": 1, "done": 0}}}
OK = {"event": "sidewinder", "kind": "finished", "device": "local", "run_id": "a", "label": "q4", "outcome": "ok"}
FAILED = {**OK, "outcome": "failed", "failure": {"class": "measurement", "message": "exit code 1"}}


def test_chatter_about_points_is_replaced_by_one_line(terminal):
    out = terminal()
    assert out.say("Building DAG of jobs...") == ""
    assert out.say("3 of 9 steps", event=LogEvent.PROGRESS) == ""
    out.say(**PLAN)
    assert out.say(**{**OK, "headline": "decode 15.6 t/s"}) == "[1/1] local q4: decode 15.6 t/s\n"


def test_messages_of_a_workflow_are_printed(terminal):
    assert terminal().say("pi5: 3 planned, 1 failed") == "pi5: 3 planned, 1 failed\n"


@pytest.mark.parametrize("quiet", [(), ("all",), ("rules",), ("progress",)])
def test_errors_are_printed_whatever_quiet_says(terminal, quiet):
    out = terminal(quiet=quiet)
    assert "disk is full" in out.say("disk is full", logging.ERROR)
    assert "beware" in out.say("beware", logging.WARNING)
    out.say(**PLAN)
    assert "FAILED (measurement) exit code 1" in out.say(**FAILED)


def test_quiet_all_hides_what_is_well(terminal):
    out = terminal(quiet=("all",))
    out.say(**PLAN)
    assert out.say(**OK) == ""


def test_jobs_of_ordinary_rules_are_one_line_and_points_are_none(terminal):
    out = terminal()
    job = {"event": LogEvent.JOB_INFO, "rule_name": "plot", "output": ["fig.svg"], "resources": {}}
    assert out.say("", **job) == "rule plot: fig.svg\n"
    assert out.say("", **{**job, "resources": {"device": "pi5"}}) == ""


def test_a_dry_run_is_snakemakes_own(terminal):
    out = terminal(dryrun=True)
    assert out.say("Building DAG of jobs...") == "Building DAG of jobs...\n"


def test_the_end_is_summed_up_once(terminal):
    out = terminal()
    out.say(**PLAN)
    out.say(**FAILED)
    out.handler.close()
    out.handler.close()
    assert out.text().count("0 of 1 points are measured") == 1


def test_a_broken_pipe_is_not_the_sweeps_problem(terminal, monkeypatch):
    out = terminal()

    def broken(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys.stderr, "write", broken)
    out.say("hello")


def test_settings_are_checked_when_they_are_read():
    with pytest.raises(WorkflowError, match="must be one of auto, live, plain"):
        LogHandlerSettings(style="loud")
    with pytest.raises(WorkflowError, match="must not be negative"):
        LogHandlerSettings(board_every_s=-1)
