"""The error tree: each class says who is at fault, and so whether a retry makes sense and what a breaker does.

::

    SidewinderError
    ├── ConfigError          bad input of a person: nothing ran, nothing is retried        (class ``config``)
    │   └── ConfigErrors     several of them, reported together
    ├── TransportError       the way to the device is gone, or it could not be looked at   (class ``transport``)
    ├── DeviceFault          the device itself is unfit: no Python, full disk, wrong key   (class ``device``)
    ├── ParseError           the workload ran, its output could not be read                (class ``parse``)
    ├── PublishError         the controller could not put a file on its own disk           (run stops)
    ├── BrokenRecord         a file under a final name is not a valid record               (counts as not done)
    ├── LockHeld             another controller holds the run folder
    └── InternalError        our bug: the run ends loudly, records are safe                (class ``internal``)

Foreign exceptions are translated at the border only (one table per transport); inside the program nobody matches
message text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .model import FailureClass


class SidewinderError(Exception):
    """Anything Sidewinder raises on purpose. ``str(error)`` is one message fit for a person."""

    failure_class: ClassVar[FailureClass] = FailureClass.INTERNAL


class ConfigError(SidewinderError):
    """What a person wrote cannot be used. Raised before anything runs.

    ``str()`` names file, line, key, value and the rule that was broken, as far as they are known.
    """

    failure_class = FailureClass.CONFIG

    def __init__(
        self,
        rule: str,
        *,
        key: str | None = None,
        value: object = None,
        file: str | None = None,
        line: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.rule, self.key, self.value, self.file, self.line, self.hint = rule, key, value, file, line, hint
        where = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        what = f"{key}: " if key else ""
        shown = f" (got {value!r})" if value is not None else ""
        super().__init__(f"{where}{what}{rule}{shown}" + (f"\n  {hint}" if hint else ""))


class ConfigErrors(ConfigError):
    """Several problems of one config, found in one go. ``str()`` is one message each, in the order they were found."""

    def __init__(self, problems: Sequence[ConfigError]) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems = tuple(problems)
        self.args = ("\n".join(str(problem) for problem in self.problems),)


class TransportError(SidewinderError):
    """The link to the device failed, or an answer could not be had. Says nothing about the measurement."""

    failure_class = FailureClass.TRANSPORT


class DeviceFault(SidewinderError):
    """The device answers but cannot be used until a person (or a passed probe) says otherwise."""

    failure_class = FailureClass.DEVICE


class ParseError(SidewinderError):
    """The workload ended well, but its output is not what the workload promises. Raw output is kept."""

    failure_class = FailureClass.PARSE


class PublishError(SidewinderError):
    """A file could not be brought to the controller's disk (full, read-only, gone)."""


class BrokenRecord(SidewinderError):
    """A file that should hold a record is torn, empty, foreign or of another schema."""


class LockHeld(SidewinderError):
    """The run folder belongs to another live (or not provably dead) controller."""


class InternalError(SidewinderError):
    """A bug in Sidewinder."""
