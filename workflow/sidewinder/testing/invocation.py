"""An invocation: one run of the controller in a simulation, from its start to its end or its death.

It does the engine's part: carries instructions out on fake devices and a fake disk, and turns what happens into events,
late ones, repeated ones and lost ones among them.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.events import Event, Work
from sidewinder.core.instructions import Instruction
from sidewinder.files import journal
from sidewinder.model import AttemptId, Failure, FailureClass
from sidewinder.testing.disk import FakeRecord, outcome_of
from sidewinder.testing.witness import Witness

if TYPE_CHECKING:
    from sidewinder.testing.simulation import Simulation

MAX_EVENTS = 20_000
PATIENCE_S = 1_500.0  # of a person whose device never comes back and may never be given up
CALL_AGAIN_S = 2.0
UTC = "2026-01-01T00:00:00.000+00:00"  # nothing that decides reads it

#: what the engine's journal makes of a note about a device
STATE_AFTER = {
    "device_down": "open",
    "probe_failed": "open",
    "given_up": "open",
    "released": "open",
    "quarantined": "quarantined",
    "device_up": "closed",
}


class Invocation:
    def __init__(self, sim: Simulation, disturbed: bool) -> None:
        self.sim = sim
        self.rng = rng = sim.rng
        self.disk = sim.disk
        self.replay = sim.disk.replay()
        self.campaign = sim.make(sim.policy, random.Random(rng.random()))
        self.queue: list[tuple[float, int, Event | Instruction]] = []
        self.serial = itertools.count()
        self.began_s = sim.clock.monotonic_s
        self.old: list[Event] = []
        self.publishing: dict[str, do.Publish] = {}
        self.copies: dict[str, Work] = {}  # by the work they are a copy of
        self.away_s: dict[AttemptId, float] = {}  # runs whose link is lost, since when
        self.unwanted: set[AttemptId] = set()  # nobody calls their device again
        self.stopped = False
        self.disk_full_after = rng.randint(1, 30) if disturbed and rng.random() < 0.2 else None
        self.kill_after = rng.randint(1, 150) if disturbed and rng.random() < 0.6 else None
        self.stop_after = rng.randint(1, 150) if disturbed and rng.random() < 0.5 else None
        self.quarantine_after = rng.randint(1, 150) if disturbed and rng.random() < 0.1 else None
        self.early_timers = rng.random() < 0.2
        self.late_events = rng.random() < 0.4
        self.slow_answers = rng.random() < 0.2
        self.calls_again = rng.random() < 0.7  # else a lost link is told to the core at once
        self.deliveries = 0
        self.down = {
            name: ev.Earlier(str(line.get("reason")), line["state"] == "quarantined", rng.uniform(0.0, 1e6))
            for name, line in self.replay.breakers.items()
            if line["state"] != "closed"
        }
        self.witness = Witness(self)

    def run(self) -> None:
        sim, rng = self.sim, self.rng
        busy = {flight.device for flight in self.replay.in_flight.values()}
        # who joins a group late brings no tighter limit: what runs by then is not ended for it
        free = [d for d in sim.devices if d.group_max_concurrency is None and d.id not in busy]
        late = [d for d in free if rng.random() < 0.05]
        for device in sim.devices:
            if device not in late:
                self._add(device)
        self.witness.devices_added()
        todo = [self._as_work(work) for work in sim.works if self._outcome(work.work_id) != "ok"]
        rest = [work for work in todo if work.device in {device.id for device in late}]
        now = [work for work in todo if work not in rest]
        half = rng.randint(0, len(now))
        self._deliver(ev.PointsQueued(tuple(now[:half])))
        self._later(rng.uniform(0.0, 60.0), ev.PointsQueued(tuple(now[half:])))
        for device in late:
            self._later(rng.uniform(0.0, 60.0), ev.DeviceAdded(device, "", sim.policies[device.id], None))
        if late:
            self._later(60.0, ev.PointsQueued(tuple(rest)))
        while self.queue:
            at_s, _, what = heapq.heappop(self.queue)
            sim.clock.advance_to(max(at_s, sim.clock.monotonic_s))
            if sim.jumps is not None and sim.jumps.random() < 0.01:
                sim.injected["clock jump"] += 1
                sim.clock.jump(sim.jumps.uniform(-1e6, 1e6))  # nothing in the core may notice
            if isinstance(what, do.Attach):
                self._carry_out(what)
                continue
            if isinstance(what, ev.DeviceAdded):
                what = what._replace(earlier=self.down.get(what.device.id), outlives_s=sim.outlives_s)
            self._deliver(what)  # type: ignore[arg-type]
            if self.kill_after is not None and self.deliveries >= self.kill_after:
                self._die()
                return
            self._disturb()
        self.witness.ended([*todo, *self.copies.values()])

    def _add(self, device: Any) -> None:
        sim, flights = self.sim, self.replay.in_flight
        in_flight = tuple(AttemptId(w, f.n) for w, f in flights.items() if f.device == device.id)
        policy, earlier = sim.policies[device.id], self.down.get(device.id)
        self._deliver(ev.DeviceAdded(device, "", policy, earlier, in_flight, sim.outlives_s))

    def _outcome(self, work_id: str) -> str | None:
        record = self.disk.records.get(work_id)
        return None if record is None else record.outcome

    def _as_work(self, work: Work) -> Work:
        flight = self.replay.in_flight.get(work.work_id)
        last = flight.n if flight is not None else self.replay.highest.get(work.work_id, 0)
        return work._replace(last_attempt=last, in_flight=flight is not None)

    def _later(self, delay_s: float, what: Event | Instruction) -> None:
        heapq.heappush(self.queue, (self.sim.clock.monotonic_s + delay_s, next(self.serial), what))

    def _answer_s(self) -> float:
        """How long an answer takes; some are very late."""
        rng = self.rng
        if self.slow_answers and rng.random() < 0.1:
            self.sim.injected["slow answer"] += 1
            return rng.uniform(0.5, 60.0)
        return rng.uniform(0.001, 0.5)

    # -- bad luck of the controller -----------------------------------------------------------------------------------

    def _disturb(self) -> None:
        sim, rng = self.sim, self.rng
        if self.stop_after is not None and self.deliveries >= self.stop_after:
            self.stop_after = self.stop_after + 20 if rng.random() < 0.3 else None
            drain = rng.random() < 0.5
            sim.injected["drained by a person" if drain else "stopped by a person"] += 1
            self._stop(drain)
        if self.quarantine_after is not None and self.deliveries >= self.quarantine_after:
            self.quarantine_after = None
            device = rng.choice(sim.devices).id
            if device in self.campaign.lanes:
                sim.injected["quarantined"] += 1
                self._deliver(ev.DeviceQuarantined(device, "somebody pulled the card"))
        long = self.deliveries > MAX_EVENTS // 4
        tired = long or sim.clock.monotonic_s - self.began_s > PATIENCE_S
        # One that is away most of the time and is never given up may need a week for a run that outlives its link.
        endless = long and any(device.give_up_after_s is None for device in sim.devices)
        if tired and not self.stopped and (endless or any(fake.is_dead for fake in sim.fakes.values())):
            sim.injected["patience lost"] += 1
            self._stop(True)

    def _stop(self, drain: bool) -> None:
        self.stopped = True
        self._deliver(ev.CancelRequested(drain))

    def _die(self) -> None:
        """kill -9, or the power fails: what was on its way to the disk is there or not."""
        sim, rng = self.sim, self.rng
        power_cut = rng.random() < 0.3
        sim.injected["power cut" if power_cut else "controller killed"] += 1
        for publish in self.publishing.values():
            if rng.random() < 0.5:
                self._record(publish)
        sim.injected[self.disk.controller_dies(rng, power_cut=power_cut)] += 1

    def _disk_is_full(self) -> bool:
        if self.disk_full_after is None:
            return False
        self.disk_full_after -= 1
        if self.disk_full_after > 0:
            return False
        self.sim.injected["disk full"] += 1
        return True

    # -- events -------------------------------------------------------------------------------------------------------

    def _deliver(self, event: Event) -> None:
        sim = self.sim
        sim.events += 1
        self.deliveries += 1
        assert self.deliveries < MAX_EVENTS, "promise 1: this invocation does not end"
        if isinstance(event, ev.Published):
            self._record(self.publishing.pop(event.work_id))
        elif isinstance(event, ev.PublishFailed):
            del self.publishing[event.work_id]
        elif isinstance(event, ev.Journaled):
            self.disk.sync()
        if isinstance(event, ev.JournalFailed | ev.PublishFailed):
            self.stopped = True
        self.witness.before(event)
        made = self.campaign.handle(event, sim.clock.monotonic_s)
        sim.remember(event, made)
        self.campaign.check_invariants()
        self.witness.after(event, made)
        for instruction in made:
            self._carry_out(instruction)
        if self.late_events:
            self._repeat_late(event)

    def _record(self, publish: do.Publish) -> None:
        """The record is under its final name."""
        before = self.disk.records.get(publish.work_id)
        assert before is None or before.outcome != "ok", f"promise 2: {publish.work_id} was published ok before"
        outcome = outcome_of(publish.failure)
        if outcome == "failed":
            self.disk.failed_in[publish.work_id] = self.sim.invocation
        self.disk.records[publish.work_id] = FakeRecord(outcome, publish.attempt, publish.failure, self.sim.invocation)

    def _repeat_late(self, event: Event) -> None:
        """An answer of an attempt that is over, or a timer, arrives once more, late (B30)."""
        sim, rng = self.sim, self.rng
        if isinstance(event, ev.TimerFired):
            if rng.random() < 0.2:
                sim.injected["timer fired twice"] += 1
                self._later(rng.uniform(0.0, 5.0), event)
            return
        if getattr(event, "attempt", None) is None:
            return
        if not isinstance(event, ev.Acked) and rng.random() < 0.2:
            self.old.append(event)
        if self.old and rng.random() < 0.1:
            late = rng.choice(self.old)
            attempt: AttemptId = late.attempt  # type: ignore[union-attr]
            item = self.campaign.items.get(attempt.work_id)
            if (item is None or item.attempt != attempt) and attempt not in self.campaign.evictions:
                sim.injected["late event"] += 1
                state = item.state if item else None
                made = self.campaign.handle(late, sim.clock.monotonic_s)
                self.campaign.check_invariants()
                assert all(isinstance(i, do.Note) for i in made), f"promise 9: a late {late} led to {made}"
                assert (item.state if item else None) == state, f"promise 9: a late {late} moved {attempt}"

    # -- instructions -------------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        sim, rng = self.sim, self.rng
        now_s = sim.clock.monotonic_s
        match instruction:
            case do.Note():
                self.witness.noted(instruction)
                self._keep(instruction)
            case do.SetTimer(timer, at_s):
                self.witness.timers[timer] = at_s
                self._set_timer(timer, max(0.0, at_s - now_s))
            case do.Journal(attempt, device):
                if self._disk_is_full():
                    self._later(0.001, ev.JournalFailed(attempt, "no space left on device"))
                else:
                    self.disk.append(journal.claimed(attempt, device, UTC), sync=False)
                    self._later(rng.choice([0.001, 0.001, 2.0]), ev.Journaled(attempt))
            case do.RunExclusive(work_id, device):
                self.witness.exclusive(work_id, device)
                self._later(rng.uniform(1.0, 20.0), ev.ExclusiveEnded(work_id))
            case do.Parse(attempt):
                failure = None
                if rng.random() < sim.bad_luck:
                    sim.injected["Parse failed"] += 1
                    verdicts = [FailureClass.PARSE, FailureClass.MEASUREMENT, FailureClass.CONFIG]
                    failure = Failure(rng.choice(verdicts), "no rows")
                self._later(rng.choice([0.001, 0.001, 5.0]), ev.Parsed(attempt, failure))
            case do.Publish(work_id, attempt, failure):
                self.witness.published(instruction)
                self.publishing[work_id] = instruction
                if self._disk_is_full():
                    self._later(0.001, ev.PublishFailed(work_id, "no space left on device"))
                else:
                    self._later(rng.choice([0.001, 0.001, 2.0]), ev.Published(work_id))
            case do.ReportDone(work_id, outcome, _):
                self.witness.reported_done(instruction)
                claimed = self.campaign.done[work_id].n
                if outcome in ("ok", "failed") and self._outcome(work_id) is not None:
                    self.disk.append(
                        journal.ended(AttemptId(work_id, claimed), sim.home[work_id], outcome, UTC), sync=False
                    )
            case do.Ack(attempt, device):
                self.witness.acked(attempt)
                self._later(0.001, sim.fakes[device].answer(instruction, now_s))  # type: ignore[arg-type]
            case do.Probe(device, call):
                self.witness.probed(device, call=call)
                answer = sim.fakes[device].answer(instruction, now_s)
                assert isinstance(answer, ev.ProbeAnswered)
                if not answer.ok:
                    sim.injected["call failed" if call else "Probe failed"] += 1
                self._later(rng.uniform(0.01, 5.0), answer)
            case do.Move():
                self._move(instruction, now_s)
            case do.StartAttempt() | do.AskStatus() | do.Attach() | do.Kill():
                self._ask_device(instruction, now_s)

    def _set_timer(self, timer: str, delay_s: float) -> None:
        rng = self.rng
        if self.early_timers and rng.random() < 0.3:
            self.sim.injected["early timer"] += 1
            self._later(delay_s * rng.random(), ev.TimerFired(timer))
        if self.slow_answers and rng.random() < 0.1:
            self.sim.injected["late timer"] += 1
            delay_s += rng.uniform(0.0, 60.0)
        self._later(delay_s, ev.TimerFired(timer))

    def _keep(self, note: do.Note) -> None:
        """Into the journal, as the engine does it, at the moment it happens."""
        state = STATE_AFTER.get(note.kind)
        if state is not None:
            self.disk.append(journal.breaker(note.device, state, UTC, reason=note.fields.get("reason")), sync=True)
        elif note.kind == "adopted":
            attempt = AttemptId(str(note.work_id), note.fields["attempt"])
            self.disk.append(journal.adopted(attempt, note.device, UTC), sync=False)
        elif note.kind == "retry" and note.fields.get("evidence"):
            attempt = AttemptId(str(note.work_id), note.fields["attempt"])
            self.disk.append(journal.died(attempt, note.device, UTC), sync=False)

    def _ask_device(self, instruction: do.StartAttempt | do.AskStatus | do.Attach | do.Kill, now_s: float) -> None:
        sim, attempt, device = self.sim, instruction.attempt, instruction.device
        fake = sim.fakes[device]
        self.witness.asks(instruction)
        if isinstance(instruction, do.Kill) and attempt in self.away_s:
            self.unwanted.add(attempt)
        known = len(fake.runs)
        answer = fake.answer(instruction, now_s)
        for run in fake.runs[known:]:
            self.witness.execution(run, fake)
        if isinstance(instruction, do.Attach):
            self._attached(instruction, answer, now_s)
            return
        assert not isinstance(answer, float)
        if isinstance(answer, ev.TransportFailed):
            sim.injected[f"{type(instruction).__name__} failed"] += 1
            if fake.is_unfit(now_s):
                self._later(0.0, ev.DeviceQuarantined(device, answer.error))
        elif not isinstance(answer, ev.AttemptStarted | ev.StatusAnswered | ev.KillProven):
            sim.injected[_kind_of(answer)] += 1
        self._later(self._answer_s(), answer)

    def _attached(self, attach: do.Attach, answer: Event | float, now_s: float) -> None:
        """Whoever waits for a run calls its device again for a lease, where the link is lost (engine/linkloss.py)."""
        sim, attempt, fake = self.sim, attach.attempt, self.sim.fakes[attach.device]
        since_s = self.away_s.get(attempt)
        if not isinstance(answer, ev.TransportFailed):
            if since_s is not None:
                del self.away_s[attempt]
                sim.injected["link healed within the lease"] += 1
                self.witness.healed(attempt)
            if isinstance(answer, float):
                self._later(answer - now_s, attach)
            else:
                if isinstance(answer, ev.AttemptDied):
                    sim.injected[_kind_of(answer)] += 1
                self._later(self._answer_s(), answer)
            return
        if answer.error == "the runner is gone" or fake.is_unfit(now_s) or not self.calls_again:
            self.away_s.pop(attempt, None)
            sim.injected["Attach failed"] += 1
            if fake.is_unfit(now_s):
                self._later(0.0, ev.DeviceQuarantined(attach.device, answer.error))
            self._later(self._answer_s(), answer)
            return
        if since_s is None:
            self.away_s[attempt] = since_s = now_s
            sim.injected["link lost"] += 1
        if attempt in self.unwanted or now_s - since_s >= sim.lease_s:
            del self.away_s[attempt]
            sim.injected["link lost for longer than the lease"] += 1
            self._later(0.001, answer._replace(may_run_s=max(0.0, sim.outlives_s - (now_s - since_s))))
            return
        self._later(self.rng.uniform(0.5, CALL_AGAIN_S), attach)

    def _move(self, move: do.Move, now_s: float) -> None:
        """Look at the device that is to stand in, and make the copy under a name of its own."""
        sim, work_id, to_device = self.sim, move.work_id, move.to_device
        self.witness.moves(move)
        delay_s = self.rng.uniform(0.01, 5.0)
        answer = sim.fakes[to_device].answer(do.Probe(to_device), now_s)
        assert isinstance(answer, ev.ProbeAnswered)
        lacks_model = self.rng.random() < sim.bad_luck * 0.2
        if not answer.ok or lacks_model:
            sim.injected["Move refused"] += 1
            self.witness.refused.add((work_id, to_device))
            self._later(delay_s, ev.MoveRefused(work_id, to_device, answer.error or "no path for the model"))
            return
        name = f"{work_id}@{to_device}"
        sim.injected["moved"] += 1
        self.witness.moved_to[work_id] = name
        sim.home[name] = to_device
        if self._outcome(name) == "ok":
            self._later(delay_s, ev.Moved(work_id, to_device, name, None))
            return
        copy = self.copies[work_id] = self._as_work(Work(name, to_device, position=1000))
        self._later(delay_s, ev.Moved(work_id, to_device, name, copy))


def _kind_of(answer: Event) -> str:
    kind = type(answer).__name__
    if isinstance(answer, ev.AttemptRefused | ev.AttemptDied):
        return f"{kind} {answer.failure.failure_class.value}"
    return kind
