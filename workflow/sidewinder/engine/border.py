"""The border: the one table from an exception to the event that an instruction ends in.

Behind it there are only events. Whatever is not in the table is a bug of ours and ends the run loudly (class
``internal``): guessing a class for it would turn our bugs into verdicts about devices.
"""

from __future__ import annotations

from sidewinder.core.events import (
    Acked,
    AttemptRefused,
    Event,
    JournalFailed,
    KillUnproven,
    Parsed,
    ProbeAnswered,
    PublishFailed,
    TransportFailed,
)
from sidewinder.core.instructions import (
    Ack,
    AskStatus,
    Attach,
    Instruction,
    Journal,
    Kill,
    Parse,
    Probe,
    Publish,
    StartAttempt,
)
from sidewinder.errors import ConfigError, DeviceFault, ParseError, PublishError, TransportError
from sidewinder.model import Failure, FailureClass


def event_for(instruction: Instruction, error: Exception) -> Event | None:
    """The event that ``instruction`` ends in because of ``error``; None: not a failure that may happen here."""
    text = str(error) or type(error).__name__
    match instruction, error:
        case StartAttempt(attempt=attempt), DeviceFault():
            return AttemptRefused(attempt, Failure(FailureClass.DEVICE, text))
        case StartAttempt(attempt=attempt), ConfigError():
            return AttemptRefused(attempt, Failure(FailureClass.CONFIG, text))
        case ((AskStatus(attempt=attempt) | StartAttempt(attempt=attempt) | Attach(attempt=attempt)), TransportError()):
            return TransportFailed(attempt, text)
        case ((AskStatus(attempt=attempt) | Attach(attempt=attempt)), DeviceFault()):
            # unfit while work of ours was on it: it cannot be looked at, and the reactor quarantines it
            return TransportFailed(attempt, text)
        case ((AskStatus(attempt=attempt) | Attach(attempt=attempt) | Kill(attempt=attempt)), ConfigError()):
            # a key file that is gone from this machine: the device cannot be looked at
            return TransportFailed(attempt, text)
        case Kill(attempt=attempt), TransportError():
            return TransportFailed(attempt, text)
        case Kill(attempt=attempt), DeviceFault():
            return KillUnproven(attempt, text)
        case Parse(attempt=attempt), ParseError():
            return Parsed(attempt, Failure(FailureClass.PARSE, text))
        case Parse(attempt=attempt), ConfigError():
            return Parsed(attempt, Failure(FailureClass.CONFIG, text))
        case Publish(work_id=work_id), PublishError():
            return PublishFailed(work_id, text)
        case Journal(attempt=attempt), PublishError():
            return JournalFailed(attempt, text)
        case Ack(attempt=attempt), (TransportError() | DeviceFault() | ConfigError()):
            return Acked(attempt)  # harmless: a device forgets results by age
        case Probe(device=device), (TransportError() | DeviceFault() | ConfigError()):
            return ProbeAnswered(device, False, text, unfit=not isinstance(error, TransportError))
    return None
