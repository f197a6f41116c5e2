"""A campaign: everything that is still to be decided about a set of work on a set of devices.

``handle(event, now_s)`` is the only door: no I/O, no clock, no randomness of its own. What may follow what is in
``lifecycle.TRANSITIONS``; what each event means is in ``attempts`` (about one attempt) and ``service`` (about a
device or the whole run).
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from sidewinder.core import attempts, failover, service, stragglers
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.breaker import HEALTHY, HalfOpen, Trial
from sidewinder.core.events import Event
from sidewinder.core.instructions import Instruction
from sidewinder.core.item import Item, new
from sidewinder.core.lane import Lane
from sidewinder.core.lifecycle import (
    TRANSITIONS,
    Claiming,
    Done,
    Occupying,
    Starting,
    State,
    Turn,
    Waiting,
)
from sidewinder.core.retry import Random
from sidewinder.core.turns import Group
from sidewinder.errors import InternalError
from sidewinder.model import AttemptId, Failure, Policy

#: Moves that are remembered: hundreds of points' worth, so that the story of a point on a slow device is whole.
LOG_LENGTH = 10_000
STORY_LENGTH = 24

Steps = dict[type[Any], tuple[attempts.Handler, frozenset[type[Any]]]]


def _steps(event: type[Any]) -> Steps:
    """What this event does in each state, and which states may follow."""
    handler = attempts.HANDLERS[event]
    return {state: (handler, allowed) for (state, met), allowed in TRANSITIONS.items() if met is event}


_WORK_STEPS: dict[type[Any], Steps] = {
    event: _steps(event) for event in (ev.Published, ev.PublishFailed, ev.ExclusiveEnded, ev.Moved, ev.MoveRefused)
}
_TIMER_STEPS = _steps(ev.TimerFired)
_ATTEMPT_STEPS: dict[type[Any], Steps] = {
    e: _steps(e) for e in attempts.HANDLERS if e not in _WORK_STEPS and e is not ev.TimerFired
}
_NO_STEPS: Steps = {}
_ABOUT_A_KILL = frozenset({ev.KillProven, ev.KillUnproven, ev.TransportFailed})


class Timer(NamedTuple):
    at_s: float
    target: Item | Lane


class Campaign:
    def __init__(self, policy: Policy, rng: Random) -> None:
        self.policy = policy
        self.rng = rng
        self.now_s = 0.0
        self.items: dict[str, Item] = {}  # open work only
        self.done: dict[str, Done] = {}
        self.lanes: dict[str, Lane] = {}
        self.groups: dict[str, Group] = {}
        self.timers: dict[str, Timer] = {}
        self.evictions: dict[AttemptId, Item] = {}  # runs nobody wants, by the work that waits for their end
        self.stop: service.Stop | None = None
        self.dropped_events = 0
        self._timer_serial = 0
        #: the last moves of all items: what an unexpected event is explained with
        self._log: deque[tuple[float, Item, type[Any]]] = deque(maxlen=LOG_LENGTH)
        self._freed: list[Group] = []  # groups in which something may start once this event is dealt with

    # -- the door -----------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_s: float) -> list[Instruction]:
        """Take one event and say what is to be done. Raises ``InternalError`` on a bug, ours or the caller's."""
        self.now_s = now_s
        out: list[Instruction] = []
        kind = type(event)
        item: Item | None
        steps = _ATTEMPT_STEPS.get(kind)
        if steps is not None:
            attempt: AttemptId = event.attempt  # type: ignore[union-attr]
            item = self.items.get(attempt.work_id)
            if item is None or (item.attempt is not attempt and item.attempt != attempt):
                item = self.evictions.get(attempt) if kind in _ABOUT_A_KILL else None
                if item is None:
                    self._drop(attempt, kind, out)
                    return out
        elif kind is ev.Acked:
            return out  # the device's last word: nothing follows from it
        elif (steps := _WORK_STEPS.get(kind)) is not None:
            item = self.items.get(event.work_id)  # type: ignore[union-attr]
            if item is None:
                raise InternalError(f"{event!r}, but no such work is open here")
        elif kind is ev.TimerFired:
            steps = _TIMER_STEPS
            item = self._timer_fired(event, out)  # type: ignore[arg-type]
        else:
            steps = _NO_STEPS
            item = None
            service.HANDLERS[kind](self, event, out)
        if item is not None:
            step = steps.get(type(item.state))
            if step is None:
                raise self.unexpected(item, f"{event!r} in state {type(item.state).__name__}")
            handler, allowed = step
            self._log.append((now_s, item, kind))
            handler(self, item, event, out)
            if type(item.state) not in allowed:
                raise self.unexpected(item, f"after {event!r}, {item.state!r}")
        freed = self._freed
        while freed:
            self._give_turns(freed.pop(), out)
        return out

    def _drop(self, attempt: AttemptId, kind: type[Any], out: list[Instruction]) -> None:
        """The one place where an event of an attempt that is no longer current ends (B30: late answers)."""
        item = self.items.get(attempt.work_id)
        done = self.done.get(attempt.work_id)
        if item is None and done is None and kind not in _ABOUT_A_KILL:
            raise InternalError(f"{kind.__name__} about {attempt}, which was never queued here")
        self.dropped_events += 1
        device = item.lane.id if item is not None else done.device if done is not None else ""
        out.append(do.Note("stale_event", device, attempt.work_id, {"event": kind.__name__, "attempt": attempt.n}))

    def _timer_fired(self, event: ev.TimerFired, out: list[Instruction]) -> Item | None:
        """The item whose wait is over. Timers are not taken back: one whose item went on otherwise means nothing."""
        timer = self.timers.get(event.timer)
        if timer is None:
            return None
        target = timer.target
        if isinstance(target, Item) and getattr(target.state, "timer", None) != event.timer:
            del self.timers[event.timer]
            return None
        if self.now_s < timer.at_s:
            # fired early (a jump of the clock behind it): promise 10, nothing happens before its time
            out.append(do.SetTimer(event.timer, timer.at_s))
            return None
        del self.timers[event.timer]
        if isinstance(target, Item):
            return target
        service.lane_timer(self, target, event.timer, out)
        return None

    # -- turns --------------------------------------------------------------------------------------------------------

    def wake(self, lane: Lane) -> None:
        """Something about this lane changed that may let work start, once this event is dealt with."""
        self._freed.append(lane.group)

    def _give_turns(self, group: Group, out: list[Instruction]) -> None:
        while group.held < group.limit:
            asks = group.held >= group.room
            lane = group.next_asking() if asks else group.next_lane()
            if lane is None:
                return
            if lane.due and not asks:
                item = lane.due.popleft()
                state = item.state
                assert isinstance(state, Waiting)
                self.move(item, Turn, Starting(state.attempt, state.slot))
                out.append(do.StartAttempt(state.attempt, lane.id, state.slot))
                continue
            item = lane.points.pop() if asks else lane.next_item()
            slot = lane.slots.free.pop()
            if item.exclusive:
                self.move(item, Turn, Occupying(slot))
                out.append(do.RunExclusive(item.work_id, lane.id))
            else:
                self._log.append((self.now_s, item, Turn))
                self.claim(item, slot, out)

    def claim(self, item: Item, slot: int, out: list[Instruction]) -> None:
        """Put this attempt on disk before anything of it happens. ``slot`` and a turn are the item's by now."""
        lane = item.lane
        breaker = lane.breaker
        if breaker.state is not HEALTHY and isinstance(breaker.state, HalfOpen):
            breaker.try_with(item.work_id)
            lane.update_gate()
        if lane.stragglers:
            stragglers.forget(self, lane, item.work_id)  # its turn is the item's from here on
        item.attempt = attempt = new(AttemptId, (item.work_id, item.n))
        item.state = new(Claiming, (attempt, slot))
        out.append(new(do.Journal, (attempt, lane.id)))

    def claim_next(self, item: Item, slot: int, out: list[Instruction]) -> None:
        """The same for an attempt after one that is known to be over. Where its group is full without it (stragglers
        that an earlier invocation left), it waits for its turn again."""
        if item.lane.group.is_overfull:
            service.step_back(self, item, out)
        else:
            self.claim(item, slot, out)

    def move(self, item: Item, why: type[Any], state: State) -> None:
        """A move that no event about the item itself caused, held against the table."""
        if type(state) not in TRANSITIONS.get((type(item.state), why), ()):
            raise self.unexpected(item, f"{type(item.state).__name__} + {why.__name__} -> {state!r}")
        self._log.append((self.now_s, item, why))
        item.state = state

    def let_go(self, item: Item) -> None:
        """Give back whatever slot and turn the item's state holds. The caller sets the next state."""
        lane, state = item.lane, item.state
        slot: int | None = getattr(state, "slot", None)
        if slot is not None:
            lane.slots.free.append(slot)
            if type(state) is not Waiting:
                lane.group.held -= 1
            self._freed.append(lane.group)
        item.attempt = None
        breaker = lane.breaker
        if breaker.state is not HEALTHY and isinstance(breaker.state, Trial) and breaker.state.work_id == item.work_id:
            breaker.try_another()
            lane.update_gate()

    # -- small verbs of the handlers ----------------------------------------------------------------------------------

    def set_timer(self, kind: str, target: Item | Lane, at_s: float, out: list[Instruction]) -> str:
        self._timer_serial += 1
        name = target.work_id if isinstance(target, Item) else target.id
        timer = f"{kind} {name} {self._timer_serial}"
        self.timers[timer] = Timer(at_s, target)
        out.append(do.SetTimer(timer, at_s))
        return timer

    def settle(self, item: Item, why: type[Any], outcome: str, failure: Failure | None, out: list[Instruction]) -> None:
        """An end that no event about the item itself caused, held against the table."""
        self.move(item, why, new(Done, (outcome, item.n, item.lane.id)))
        self.finish(item, outcome, failure, out)

    def finish(self, item: Item, outcome: str, failure: Failure | None, out: list[Instruction]) -> None:
        """The work is over: everything it held is free, and only its outcome is remembered."""
        self.let_go(item)
        item.state = done = new(Done, (outcome, item.n, item.lane.id))
        self.done[item.work_id] = done
        del self.items[item.work_id]
        item.lane.outcomes[outcome] += 1
        out.append(new(do.ReportDone, (item.work_id, outcome, failure)))
        if item.original is not None:
            failover.copy_is_over(self, item, out)

    def unexpected(self, item: Item, what: str) -> InternalError:
        return InternalError(
            f"{item.work_id} on {item.lane.id}: {what} cannot be; records on disk are safe. "
            f"Its story: {self.story(item)}"
        )

    def story(self, item: Item) -> str:
        """The item's last moves, oldest first."""
        moves = [f"{at_s:.3f} s {what.__name__}" for at_s, who, what in self._log if who is item]
        return "; ".join(moves[-STORY_LENGTH:]) or "nothing yet"

    def last_move(self, item: Item) -> type[Any] | None:
        """What last moved the item: an event, or ``Turn``, ``Kicked``, ``Drained``."""
        return next((what for _, who, what in reversed(self._log) if who is item), None)

    # -- questions ----------------------------------------------------------------------------------------------------

    def open_work(self) -> list[str]:
        """Everything that was queued and is not over."""
        return list(self.items)

    def check_invariants(self) -> None:
        from sidewinder.core.invariants import check

        check(self)

    def explain(self, work_id: str, now_s: float) -> list[str]:
        """Why is this work where it is, and what would move it? Sentences for a person."""
        from sidewinder.core.explain import explain

        return explain(self, work_id, now_s)

    def board(self) -> dict[str, dict[str, Any]]:
        """Per device: counts by state and outcome, and its state of service."""
        from sidewinder.core.explain import board

        return board(self)
