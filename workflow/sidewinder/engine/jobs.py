"""A job: one open piece of work as the engine sees it: how its task is made, its result read and its end put on disk.

The core decides when; a job knows what. There are two kinds: a point of a plan (``pointjob``) and a user's own rule
with ``device=`` (``rulejob``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from sidewinder.model import Failure, RawResult, Task

from .callbacks import Key
from .devices import DeviceLink
from .session import Session
from .shard import Shard
from .staging import Tell

if TYPE_CHECKING:
    from sidewinder.transports.client import AgentClient


class Job(Protocol):
    key: Key
    run_id: str  # the name by which the device knows it
    link: DeviceLink
    session: Session
    inline: bool  # ends in the engine: no device, no process
    is_measured: bool  # a machine that slept meanwhile spoils it
    raw: RawResult | None
    shard: Shard | None
    moved_from: str | None  # of a copy: the device it was planned for; nobody waits for it by its key

    def claim(self, n: int) -> dict[str, Any] | None:
        """The journal's line for attempt ``n``; None: nothing that outlives this controller is started."""

    def ended(self, outcome: str) -> dict[str, Any] | None:
        """The journal's line when nothing of this job is left on the device; None: the next controller asks."""

    @property
    def is_running(self) -> bool:
        """An attempt was started and its result is not here yet."""

    @property
    def brings(self) -> bool:
        """Files of this machine must be on the device before it can start: that may take long."""

    async def bring(self, tell: Tell) -> None:
        """Bring what the device lacks of them; after ``build``. Raises ``ConfigError`` (about this machine's file),
        ``DeviceFault``, ``TransportError``."""

    async def prepare(self) -> None:
        """Learn what the task needs from the device. Raises ``DeviceFault``, ``TransportError``; what is wrong with the
        task itself is raised by ``build``."""

    def build(self) -> Task:
        """What to run. Raises ``ConfigError``."""

    async def fetch(self, client: AgentClient, n: int) -> RawResult:
        """Bring attempt ``n`` home, which has ended. Raises ``TransportError``, ``DeviceFault``."""

    def starting(self, n: int, at_utc: str) -> None:
        """Attempt ``n`` is about to be started."""

    def begins(self, n: int, boot: str | None) -> None:
        """Attempt ``n`` is started now, in this boot of the device, where that is to be remembered."""

    def adopted(self, n: int) -> None:
        """Attempt ``n`` of an earlier controller, or from before the link broke, was found on the device."""

    def attempt_failed(self, n: int, failure: Failure, at_utc: str) -> None:
        """Attempt ``n`` ended without a result: the next one says so in its record."""

    def arrived(self, n: int, raw: RawResult, at_utc: str) -> None: ...

    def parse(self) -> Failure | None:
        """Read the raw result. Raises ``ParseError``."""

    def publish(self, failure: Failure | None, at_utc: str) -> None:
        """Put the end on disk (an inline one: into the session's ``pending``). Raises ``PublishError``."""

    def warn(self, text: str) -> None:
        """A sentence for the record."""

    def describe(self) -> dict[str, Any]:
        """What displays are told when it is over: headline, duration, label."""
