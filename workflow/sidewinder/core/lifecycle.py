"""The lifecycle: the states a piece of work can be in, one frozen value each, and the table of moves between them.

A state carries exactly the data that make sense in it, so a contradiction cannot be written down. ``TRANSITIONS`` is
the whole table: what may follow when an event meets a state. A pair that is not in it is a bug and raises
``InternalError`` with the story of that work. ``docs/core.md`` draws the same table; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sidewinder.core import events as ev
from sidewinder.model import AttemptId, Failure


class Queued(NamedTuple):
    """Waits in its device's queue for a slot of the device and a turn in its group."""


class BackingOff(NamedTuple):
    """Waits for a timer after a failure on the way. Holds no slot and no turn."""

    timer: str


class Claiming(NamedTuple):
    """Holds a slot and a turn; the claim of this attempt is on its way to the controller's disk."""

    attempt: AttemptId
    slot: int


class Asking(NamedTuple):
    """The attempt may exist on the device: what the device knows of it decides."""

    attempt: AttemptId
    slot: int


class Starting(NamedTuple):
    """The start is on its way to the device."""

    attempt: AttemptId
    slot: int


class Waiting(NamedTuple):
    """The device's slot is held by another controller's run. Keeps its slot (nobody could use it), not its turn."""

    attempt: AttemptId
    slot: int
    holder: str
    timer: str | None  # None: the wait is over and the next turn asks again


class Evicting(NamedTuple):
    """The device's slot is held by a run that this controller once started and nobody wants: it is being killed."""

    attempt: AttemptId
    slot: int
    holder: AttemptId


class Running(NamedTuple):
    """The attempt runs on the device, or has ended there and is being fetched."""

    attempt: AttemptId
    slot: int


class Killing(NamedTuple):
    """The attempt is being stopped and proven dead. ``answers`` counts events still to come for it."""

    attempt: AttemptId
    slot: int
    cancel: bool  # True: a person asked for it; False: the device lost it, and the next attempt waits for the proof
    answers: int = 1


class Parsing(NamedTuple):
    """The raw result is on the controller; the workload reads it."""

    attempt: AttemptId
    slot: int


class Publishing(NamedTuple):
    """The record is on its way to disk. A measured point keeps slot and turn until it is there; a hole has neither."""

    attempt: AttemptId | None
    slot: int | None
    failure: Failure | None
    ack: bool = False  # the device keeps a result of this attempt that it may forget once the record is there


class Moving(NamedTuple):
    """Its device is out and another one may stand in: that one is looked at, and a copy is made for it."""

    to_device: str
    failure: Failure  # the hole that it is otherwise


class Following(NamedTuple):
    """A hole on disk that names its copy on another device; over when the copy is."""

    copy: str
    failure: Failure


class Occupying(NamedTuple):
    """An ordinary job of the controller runs in its turn."""

    slot: int


class Done(NamedTuple):
    """Over, and reported. Only outcome and highest attempt are remembered."""

    outcome: str
    n: int
    device: str


State = (
    Queued
    | BackingOff
    | Claiming
    | Asking
    | Starting
    | Waiting
    | Evicting
    | Running
    | Killing
    | Parsing
    | Publishing
    | Moving
    | Following
    | Occupying
    | Done
)

QUEUED: Final = Queued()

#: states of an attempt that hold a slot of the device
HOLDS_SLOT: Final = frozenset({Claiming, Asking, Starting, Waiting, Evicting, Running, Killing, Parsing, Occupying})
#: ... and a turn in the group as well
HOLDS_TURN: Final = HOLDS_SLOT - {Waiting}


class Turn(NamedTuple):
    """Not an event from outside: the work was given a slot and a turn."""


class Drained(NamedTuple):
    """Not an event from outside: the device was quarantined or given up."""


class Followed(NamedTuple):
    """Not an event from outside: the copy that this work left to another device is over."""


class Kicked(NamedTuple):
    """Not an event from outside: the device named this work as the holder of its slot while it was backing off."""


#: (state, event) -> the states that may follow. Staying in the same state is written down too.
TRANSITIONS: Final[Mapping[tuple[type[Any], type[Any]], frozenset[type[Any]]]] = {
    (Queued, Turn): frozenset({Claiming, Occupying}),
    (Queued, Kicked): frozenset({Claiming, Killing}),
    (Queued, Drained): frozenset({Publishing, Moving}),
    (Queued, ev.CancelRequested): frozenset({Done}),
    (BackingOff, ev.TimerFired): frozenset({Queued}),
    (BackingOff, Kicked): frozenset({Claiming}),
    (BackingOff, Drained): frozenset({Publishing, Moving}),
    (BackingOff, ev.CancelRequested): frozenset({Done}),
    (Claiming, ev.Journaled): frozenset({Asking, Starting, Done}),
    (Claiming, ev.JournalFailed): frozenset({Done}),
    (Asking, ev.StatusAnswered): frozenset({Starting, Running, Killing, Claiming, Queued, Publishing, Moving, Done}),
    (Asking, ev.AttemptDied): frozenset({Claiming, Queued, BackingOff, Publishing, Moving, Done}),
    (Asking, ev.TransportFailed): frozenset({BackingOff, Publishing, Moving, Done}),
    (Starting, ev.AttemptStarted): frozenset({Running, Killing}),
    (Starting, ev.AttemptBusy): frozenset({Waiting, Evicting, Starting, Queued, Publishing, Moving, Done}),
    (Starting, ev.AttemptStale): frozenset({Claiming, BackingOff, Publishing, Moving, Done}),
    (Starting, ev.AttemptRefused): frozenset({Publishing, Moving, BackingOff, Done}),
    (Starting, ev.AttemptDied): frozenset({BackingOff, Publishing, Moving, Done}),
    (Starting, ev.TransportFailed): frozenset({BackingOff, Publishing, Moving, Done}),
    (Waiting, ev.TimerFired): frozenset({Waiting}),
    (Waiting, Turn): frozenset({Starting}),
    (Waiting, Drained): frozenset({Publishing, Moving}),
    (Waiting, ev.CancelRequested): frozenset({Done}),
    (Evicting, Kicked): frozenset({Queued}),
    (Evicting, ev.KillProven): frozenset({Starting, Done}),
    (Evicting, ev.KillUnproven): frozenset({Publishing, Moving, Done}),
    (Evicting, ev.TransportFailed): frozenset({BackingOff, Publishing, Moving, Done}),
    (Running, ev.ResultArrived): frozenset({Parsing, Publishing, Moving, Claiming, Queued, BackingOff, Done}),
    (Running, ev.AttemptDied): frozenset({Claiming, Queued, BackingOff, Publishing, Moving, Done}),
    (Running, ev.TransportFailed): frozenset({BackingOff, Publishing, Moving, Done}),
    (Running, ev.CancelRequested): frozenset({Killing}),
    (Killing, ev.KillProven): frozenset({Claiming, Queued, BackingOff, Publishing, Moving, Done}),
    (Killing, ev.KillUnproven): frozenset({Publishing, Moving, Done}),
    (Killing, ev.TransportFailed): frozenset({Killing, BackingOff, Publishing, Moving, Done}),
    (Killing, ev.ResultArrived): frozenset({Killing, Done}),
    (Killing, ev.AttemptDied): frozenset({Killing, Done}),
    (Killing, ev.CancelRequested): frozenset({Killing}),
    (Parsing, ev.Parsed): frozenset({Publishing}),
    (Publishing, ev.Published): frozenset({Following, Done}),
    (Publishing, ev.PublishFailed): frozenset({Done}),
    (Moving, ev.Moved): frozenset({Publishing}),
    (Moving, ev.MoveRefused): frozenset({Moving, Publishing}),
    (Following, Followed): frozenset({Done}),
    (Occupying, ev.ExclusiveEnded): frozenset({Done}),
}
