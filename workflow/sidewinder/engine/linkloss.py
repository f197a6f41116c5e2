"""A link loss: the link to a device broke while a run of ours was on it, and comes back or does not.

The device keeps the run alive for a lease, so for a lease the same attempt is reconnected to here. The core's back-off
would be too slow for that, and would give the slot away while the run may still be in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sidewinder.core.instructions import Note
from sidewinder.errors import TransportError
from sidewinder.model import OUTLIVES_S, AttemptId

PAUSES_S = (0.5, 1.0, 2.0)  # between two tries; the last one again and again
PROOF_S = 1.0  # for whoever proves by its lease that a run is over to say so, before that is a failure of the way

Tell = Callable[[Note], None]
T = TypeVar("T")


class LinkLoss:
    """Of one attempt that is waited for. ``device`` is the core's name for it."""

    def __init__(self, attempt: AttemptId, device: str, lease_s: float, tell: Tell) -> None:
        self._attempt, self._device, self._lease_s, self._tell = attempt, device, lease_s, tell
        self._since_s: float | None = None
        self._tries = 0
        self._hopeless = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._since_s is not None

    @property
    def left_s(self) -> float | None:
        """Until the run must be over, and that can be proven. None: the link is well."""
        return None if self._since_s is None else self.may_run_s + PROOF_S

    def give_up(self) -> None:
        """Nobody wants the result any more: do not wait for the link to come back."""
        self._hopeless.set()

    @property
    def may_run_s(self) -> float:
        """How long the run may go on from now: the device heard of us last before the link was known to be lost."""
        away_s = 0.0 if self._since_s is None else asyncio.get_running_loop().time() - self._since_s
        return max(0.0, OUTLIVES_S - away_s)

    async def while_wanted(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` returns. Raises ``TransportError`` as soon as nobody wants it any more: files may be large."""
        working = asyncio.ensure_future(work)
        hopeless = asyncio.ensure_future(self._hopeless.wait())
        try:
            await asyncio.wait((working, hopeless), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            raise TransportError(f"{self._attempt}: its files are not wanted any more")
        finally:
            working.cancel()
            hopeless.cancel()
            await asyncio.gather(working, hopeless, return_exceptions=True)

    async def pause(self, error: TransportError) -> bool:
        """After a failure: wait for the next try. False: there is none, the lease is over or nobody wants the run."""
        now_s = asyncio.get_running_loop().time()
        if self._since_s is None:
            self._since_s, self._tries = now_s, 0
            if not self._hopeless.is_set():
                self._note("link_lost", error=str(error), lease_s=self._lease_s)
        if self._hopeless.is_set() or now_s - self._since_s >= self._lease_s:
            return False
        pause_s = PAUSES_S[min(self._tries, len(PAUSES_S) - 1)]
        self._tries += 1
        try:
            async with asyncio.timeout(pause_s):
                await self._hopeless.wait()
        except TimeoutError:
            return True
        return False

    def over(self, state: str) -> None:
        """The device answers again, and this is what it says of the run."""
        if self._since_s is not None:
            away_s = asyncio.get_running_loop().time() - self._since_s
            self._since_s = None
            if state in ("running", "finished"):
                self._note("reconnected", state=state, away_s=round(away_s, 1))

    def _note(self, kind: str, **fields: object) -> None:
        fields = {"attempt": self._attempt.n, **fields}
        self._tell(Note(kind, self._device, self._attempt.work_id, fields))
