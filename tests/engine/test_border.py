"""The one table from exceptions to events: every instruction that can fail, every error that may happen there."""

from __future__ import annotations

import pytest

from sidewinder.core import instructions as do
from sidewinder.core.events import (
    Acked,
    AttemptRefused,
    JournalFailed,
    KillUnproven,
    Parsed,
    ProbeAnswered,
    PublishFailed,
    TransportFailed,
)
from sidewinder.engine.border import event_for
from sidewinder.errors import ConfigError, DeviceFault, InternalError, ParseError, PublishError, TransportError
from sidewinder.model import AttemptId, Failure, FailureClass

A = AttemptId("0:r", 1)
START, ASK, ATTACH = do.StartAttempt(A, "d", 0), do.AskStatus(A, "d"), do.Attach(A, "d")
KILL, ACK, PROBE, PARSE = do.Kill(A, "d"), do.Ack(A, "d"), do.Probe("d"), do.Parse(A)
PUBLISH, JOURNAL = do.Publish("0:r", A, None), do.Journal(A, "d")

TABLE = [
    (START, TransportError("x"), TransportFailed(A, "x")),
    (START, DeviceFault("x"), AttemptRefused(A, Failure(FailureClass.DEVICE, "x"))),
    (START, ConfigError("x"), AttemptRefused(A, Failure(FailureClass.CONFIG, "x"))),
    (ASK, TransportError("x"), TransportFailed(A, "x")),
    (ASK, DeviceFault("x"), TransportFailed(A, "x")),
    (ATTACH, TransportError("x"), TransportFailed(A, "x")),
    (ATTACH, DeviceFault("x"), TransportFailed(A, "x")),
    (KILL, TransportError("x"), TransportFailed(A, "x")),
    (KILL, DeviceFault("x"), KillUnproven(A, "x")),
    (ASK, ConfigError("x"), TransportFailed(A, "x")),
    (ATTACH, ConfigError("x"), TransportFailed(A, "x")),
    (KILL, ConfigError("x"), TransportFailed(A, "x")),
    (ACK, ConfigError("x"), Acked(A)),
    (PROBE, ConfigError("x"), ProbeAnswered("d", False, "x", unfit=True)),
    (PARSE, ParseError("x"), Parsed(A, Failure(FailureClass.PARSE, "x"))),
    (PARSE, ConfigError("x"), Parsed(A, Failure(FailureClass.CONFIG, "x"))),
    (PUBLISH, PublishError("x"), PublishFailed("0:r", "x")),
    (JOURNAL, PublishError("x"), JournalFailed(A, "x")),
    (ACK, TransportError("x"), Acked(A)),
    (ACK, DeviceFault("x"), Acked(A)),
    (PROBE, TransportError("x"), ProbeAnswered("d", False, "x")),
    (PROBE, DeviceFault("x"), ProbeAnswered("d", False, "x", unfit=True)),
]


@pytest.mark.parametrize(("instruction", "error", "event"), TABLE, ids=lambda value: type(value).__name__)
def test_an_error_that_may_happen_is_this_event(instruction, error, event):
    assert event_for(instruction, error) == event


@pytest.mark.parametrize("instruction", [START, ASK, ATTACH, KILL, ACK, PROBE, PARSE, PUBLISH, JOURNAL])
@pytest.mark.parametrize("error", [ValueError("x"), OSError("x"), InternalError("x"), KeyError("x")])
def test_a_bug_is_no_event(instruction, error):
    assert event_for(instruction, error) is None


@pytest.mark.parametrize("instruction", [PARSE, PUBLISH, JOURNAL])
def test_work_on_the_controller_cannot_fail_on_the_way(instruction):
    assert event_for(instruction, TransportError("x")) is None
