"""A breaker: what one device's recent failures say about using it (M-115).

Closed, and open after ``limit`` transport failures in a row; open until the cooldown has passed; then one cheap probe;
then one trial point, whose end closes it or opens it again. ``down_since_s`` is kept apart from the start of the
cooldown, which every failed probe restarts: only a completed run clears it. Asking never consumes the probe.

Both survive the controller: ``resume`` takes over what an earlier invocation left. How long the device has been down
*here* is kept apart, because a device is given up for what this invocation has seen of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Closed(NamedTuple):
    failures: int = 0  # in a row


class Open(NamedTuple):
    until_s: float
    reason: str


class Probing(NamedTuple):
    reason: str


class HalfOpen(NamedTuple):
    """The probe passed: one point may go through to test the water."""

    reason: str


class Trial(NamedTuple):
    work_id: str
    reason: str


BreakerState = Closed | Open | Probing | HalfOpen | Trial

HEALTHY = Closed()


class Breaker:
    __slots__ = (
        "_limit",
        "_recovery_after_s",
        "down_here_since_s",
        "down_since_s",
        "failures",
        "recoveries",
        "state",
        "tests_failed",
        "trips",
    )

    def __init__(self, limit: int, recovery_after_s: float) -> None:
        self._limit = max(1, limit)
        self._recovery_after_s = recovery_after_s
        self.state: BreakerState = HEALTHY
        self.down_since_s: float | None = None
        self.down_here_since_s: float | None = None  # the same, seen by this invocation
        self.tests_failed = 0  # probes and trials since then: without one, nobody knows that it is still down
        self.failures = 0  # all of them, failed probes included, also those that never tripped anything
        self.trips = 0
        self.recoveries = 0

    @property
    def in_row(self) -> int:
        return self.state.failures if isinstance(self.state, Closed) else self._limit

    @property
    def reason(self) -> str | None:
        return None if isinstance(self.state, Closed) else self.state.reason

    def resume(self, reason: str, down_s: float, now_s: float) -> None:
        """An earlier invocation left the device down: its cooldown is over, the next thing is a probe."""
        self.state = Open(now_s, reason)
        self.down_since_s, self.down_here_since_s = now_s - down_s, now_s

    def failed(self, work_id: str | None, reason: str, now_s: float) -> bool:
        """A point failed on the way (None: a call, before any point). True if this opened the breaker (again)."""
        self.failures += 1
        state = self.state
        if isinstance(state, Closed):
            if state.failures + 1 < self._limit:
                self.state = Closed(state.failures + 1)
                return False
            self.trips += 1
            return self._open(reason, now_s)
        if (isinstance(state, Trial) and state.work_id == work_id) or (work_id is None and isinstance(state, HalfOpen)):
            self.tests_failed += 1
            return self._open(reason, now_s)
        return False  # a straggler of another slot: the cooldown already runs

    def probe(self) -> None:
        """The cooldown is over and somebody waits: a probe is on its way."""
        assert isinstance(self.state, Open)
        self.state = Probing(self.state.reason)

    def probe_answered(self, ok: bool, reason: str, now_s: float) -> None:
        assert isinstance(self.state, Probing)
        if ok:
            self.state = HalfOpen(self.state.reason)
        else:
            self.failures += 1
            self.tests_failed += 1
            self._open(reason, now_s)

    def try_with(self, work_id: str) -> None:
        assert isinstance(self.state, HalfOpen)
        self.state = Trial(work_id, self.state.reason)

    def try_another(self) -> None:
        """The trial point left without having said anything about the device."""
        assert isinstance(self.state, Trial)
        self.state = HalfOpen(self.state.reason)

    def completed(self) -> bool:
        """A run came back from the device. True if this closed an open breaker."""
        if self.state is HEALTHY:
            return False
        was_down = not isinstance(self.state, Closed)
        self.state = HEALTHY
        self.down_since_s = self.down_here_since_s = None
        self.tests_failed = 0
        self.recoveries += was_down
        return was_down

    def _open(self, reason: str, now_s: float) -> bool:
        self.state = Open(now_s + self._recovery_after_s, reason)
        if self.down_since_s is None:
            self.down_since_s = self.down_here_since_s = now_s
        return True
