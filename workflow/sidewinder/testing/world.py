"""A world: a small language for telling a campaign what happens and saying what must follow.

A test reads as a story: things happen (``queue``, ``happens``, ``advance``), and every instruction that follows must be
expected (``expect``) or the story fails at its end. Invariants are checked after each event. A device that is called
before it takes a turn of its group answers at once, unless the story puts it into ``silent``.

::

    with World([Device("pi", "ssh")]) as world:
        world.queue("a", on="pi")
        world.expect(Journal, "a")
        world.happens(Journaled(AttemptId("a", 1)))
        world.expect(StartAttempt, "a", n=1, slot=0)
        ...
"""

from __future__ import annotations

import random
import types
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.campaign import Campaign
from sidewinder.core.events import Event, Work
from sidewinder.core.instructions import Instruction
from sidewinder.model import AttemptId, Device, Evidence, Failure, Policy
from sidewinder.testing.clock import FakeClock

I = TypeVar("I", bound=Instruction)  # noqa: E741

OK = Evidence("done", 0)


class World:
    def __init__(self, devices: Iterable[Device], policy: Policy | None = None, *, seed: int = 0) -> None:
        self.seed = seed
        self.clock = FakeClock()
        self.policy = policy or Policy()
        self.campaign = Campaign(self.policy, random.Random(seed))
        self.pending: list[Instruction] = []  # not yet expected
        self.notes: list[do.Note] = []  # expected only where a story asks for them
        self.silent: set[str] = set()
        self._timers: list[tuple[float, str]] = []
        for device in devices:
            self.happens(ev.DeviceAdded(device))

    def __enter__(self) -> World:
        print(f"World seed={self.seed}")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.nothing()

    # -- what happens -------------------------------------------------------------------------------------------------

    def happens(self, *events: Event) -> None:
        """These events arrive, one after the other, now."""
        todo = deque(events)
        while todo:
            answers: list[Event] = []
            for instruction in self.campaign.handle(todo.popleft(), self.clock.monotonic_s):
                if isinstance(instruction, do.Note):
                    self.notes.append(instruction)
                elif isinstance(instruction, do.SetTimer):
                    self._timers.append((instruction.at_s, instruction.timer))
                elif isinstance(instruction, do.Probe) and instruction.call and instruction.device not in self.silent:
                    answers.append(ev.ProbeAnswered(instruction.device, True))
                else:
                    self.pending.append(instruction)
            self.campaign.check_invariants()
            todo.extendleft(reversed(answers))

    def queue(self, *work_ids: str, on: str, **fields: Any) -> None:
        """Work is handed over together, for one device; positions follow the order of the ids."""
        works = tuple(Work(w, on, **{"position": i, **fields}) for i, w in enumerate(work_ids))
        self.happens(ev.PointsQueued(works))

    def advance(self, seconds: float) -> None:
        """Time passes; timers fire when they are due, in their order."""
        end_s = self.clock.monotonic_s + seconds
        while self._timers and min(self._timers)[0] <= end_s:
            at_s, timer = min(self._timers)
            self._timers.remove((at_s, timer))
            self.clock.advance_to(max(at_s, self.clock.monotonic_s))
            self.happens(ev.TimerFired(timer))
        self.clock.advance_to(end_s)

    def attempt(self, work_id: str) -> AttemptId:
        """The current attempt of this work."""
        attempt = self.campaign.items[work_id].attempt
        assert attempt is not None, f"{work_id} is in no attempt"
        return attempt

    # -- what must follow ---------------------------------------------------------------------------------------------

    def expect(self, kind: type[I], what: str | None = None, **fields: Any) -> I:
        """One instruction of this kind must be among the pending ones; it is taken out and returned.

        ``what`` is the work or the device it is about; ``n`` the attempt's number; other names are its fields."""
        for instruction in self.pending:
            if isinstance(instruction, kind) and _matches(instruction, what, fields):
                self.pending.remove(instruction)
                return instruction
        raise AssertionError(
            f"expected {kind.__name__} {what or ''} {fields or ''}; pending are {self.pending}, "
            f"notes {self.notes[-5:]}, at {self.clock.monotonic_s:.3f} s, seed {self.seed}"
        )

    def nothing(self) -> None:
        """No instruction may be pending."""
        assert not self.pending, f"nobody expected {self.pending} at {self.clock.monotonic_s:.3f} s, seed {self.seed}"

    def noted(self, kind: str, **fields: Any) -> do.Note:
        """A note of this kind must have been made; the latest is returned."""
        found = [n for n in self.notes if n.kind == kind and all(n.fields.get(k) == v for k, v in fields.items())]
        assert found, f"no note {kind} {fields or ''} among {self.notes}"
        return found[-1]

    # -- whole stretches of a life ------------------------------------------------------------------------------------

    def runs(self, work_id: str, *, n: int = 1) -> None:
        """From the claim until the attempt runs on its device."""
        attempt = AttemptId(work_id, n)
        self.expect(do.Journal, work_id, n=n)
        self.happens(ev.Journaled(attempt))
        self.expect(do.StartAttempt, work_id, n=n)
        self.happens(ev.AttemptStarted(attempt))
        self.expect(do.Attach, work_id, n=n)

    def ends(self, work_id: str, evidence: Evidence = OK, failure: Failure | None = None) -> None:
        """From the end on the device until the record is published and reported."""
        attempt = self.attempt(work_id)
        self.happens(ev.ResultArrived(attempt, evidence))
        self.expect(do.Parse, work_id)
        self.happens(ev.Parsed(attempt, failure))
        self.publishes(work_id)
        self.expect(do.Ack, work_id)
        self.expect(do.ReportDone, work_id, outcome="ok" if failure is None else "failed")
        self.happens(ev.Acked(attempt))

    def publishes(self, work_id: str) -> do.Publish:
        publish: do.Publish = self.expect(do.Publish, work_id)
        self.happens(ev.Published(work_id))
        return publish

    def becomes_hole(self, work_id: str, *, because: str) -> None:
        """A record that says never measured, with these words in its message."""
        publish = self.publishes(work_id)
        assert publish.attempt is None
        assert publish.failure is not None
        assert because in publish.failure.message, publish.failure.message
        self.expect(do.ReportDone, work_id, outcome="hole")


def _matches(instruction: Any, what: str | None, fields: dict[str, Any]) -> bool:
    attempt = getattr(instruction, "attempt", None)
    about = {getattr(instruction, "work_id", None), getattr(attempt, "work_id", None)}
    if what is not None and what not in (about - {None} or {getattr(instruction, "device", None)}):
        return False
    got = types.SimpleNamespace(n=getattr(attempt, "n", None))
    return all(getattr(got if name == "n" else instruction, name, None) == value for name, value in fields.items())
