"""A simulation: one seeded campaign from the first invocation to the last, with bad luck, held against the promises.

Devices, groups, points and faults are drawn from the seed; so are the moments at which the controller is killed,
stopped by a person, or finds its disk full. After a kill the campaign is built again from what a journal would hold.
Invariants are checked after every event, the promises of docs/design.md §2 as things happen and at the end.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.breaker import Closed, Open, Probing, Trial
from sidewinder.core.campaign import Campaign
from sidewinder.core.events import Event, Work
from sidewinder.core.instructions import Instruction
from sidewinder.core.lane import Lane, OutOfService
from sidewinder.core.lifecycle import BackingOff, Killing, Turn
from sidewinder.core.policy import MAX_PREEMPTIONS, classify
from sidewinder.errors import InternalError
from sidewinder.model import AttemptId, Device, Failure, FailureClass, Policy, RetryPolicy
from sidewinder.testing.clock import FakeClock
from sidewinder.testing.device import FakeDevice, Faults, Run

MAX_EVENTS = 20_000
_REPEATABLE = (FailureClass.TRANSPORT, FailureClass.PREEMPTED)


class Violation(AssertionError):
    """A promise was broken. The message names it and the seed."""


@dataclass(slots=True)
class Disk:
    """What survives the controller: journal and records."""

    claimed: dict[str, int] = field(default_factory=dict)  # highest attempt by work
    in_flight: dict[str, bool] = field(default_factory=dict)
    outcome: dict[str, str] = field(default_factory=dict)  # "ok" | "failed" | "hole"
    failed_in: dict[str, int] = field(default_factory=dict)  # invocation of a failed result
    down: dict[str, ev.Earlier] = field(default_factory=dict)  # devices that are down or quarantined, and why


class Simulation:
    def __init__(self, seed: int, *, make: Callable[..., Campaign] = Campaign) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self._make = make
        self.clock = FakeClock()
        self.disk = Disk()
        self.policy = Policy(
            retry=RetryPolicy(max_attempts=rng.randint(1, 4), backoff_s=rng.choice([0.5, 5.0])),
            busy_wait_s=rng.choice([20.0, 120.0]),
        )
        self.bad_luck = rng.choice([0.0, 0.02, 0.1, 0.3])
        self.devices = self._draw_devices()
        self.fakes = {d.id: FakeDevice(d.id, random.Random(rng.random()), self._draw_faults()) for d in self.devices}
        self.works = self._draw_works()
        self.home = {work.work_id: work.device for work in self.works}
        self.invocation = 0
        self.events = 0
        self.injected: Counter[str] = Counter()
        self.starts_by_invocation: Counter[tuple[int, str]] = Counter()
        self._start_invocation: dict[AttemptId, int] = {}

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _draw_devices(self) -> list[Device]:
        rng = self.rng
        devices = []
        for i in range(rng.randint(1, 5)):
            group = rng.choice([None, None, "board", "host"])
            devices.append(
                Device(
                    f"d{i}",
                    "local",
                    max_concurrency=rng.choice([1, 1, 1, 2, 3]),
                    max_transport_failures=rng.choice([1, 3, 3, 5]),
                    recovery_after_s=rng.choice([20.0, 180.0]),
                    give_up_after_s=rng.choice([0.0, 60.0, 360.0, 360.0, None]),
                    resource_group=group,
                    group_max_concurrency=rng.choice([None, 1, 1, 2]) if group else None,
                )
            )
        names = [device.id for device in devices]
        return [
            dataclasses.replace(device, failover_to=tuple(rng.sample([n for n in names if n != device.id], 1)))
            if len(names) > 1 and rng.random() < 0.3
            else device
            for device in devices
        ]

    def _draw_faults(self) -> Faults:
        rng, p = self.rng, self.bad_luck
        if not p:
            return Faults()

        def some(share: float) -> float:
            return p * share if rng.random() < 0.5 else 0.0

        return Faults(
            lost_request=some(1.0),
            lost_answer=some(1.0),
            outages_per_s=some(0.05),
            outage_s=rng.choice([2.0, 20.0, 500.0]),
            runner_dies=some(1.0),
            unprovable=some(0.3),
            reboots_per_s=some(0.01),
            stale=some(0.2),
            refused=some(0.3),
            quarantine=some(0.05),
            foreign=some(0.3),
            leftover=some(0.5),
            bad_result=some(2.0),
        )

    def _draw_works(self) -> list[Work]:
        rng = self.rng
        works = []
        for device in self.devices:
            for i in range(rng.randint(0, 7)):
                works.append(Work(f"{device.id}-p{i}", device.id, priority=rng.choice([0, 0, 0, 1]), position=i))
        for i in range(rng.choice([0, 0, 2])):
            works.append(Work(f"job{i}", self.devices[0].id, exclusive=True, position=rng.randint(0, 5)))
        rng.shuffle(works)
        return works

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        """All invocations, the last one undisturbed. Raises ``Violation``."""
        try:
            for _ in range(self.rng.choice([0, 0, 1, 1, 2, 3])):
                self._invoke(disturbed=True)
            self._invoke(disturbed=False)
        except (AssertionError, InternalError) as error:
            raise Violation(f"seed {self.seed}, invocation {self.invocation}, event {self.events}: {error}") from error
        return self

    def _invoke(self, *, disturbed: bool) -> None:
        self.invocation += 1
        _Invocation(self, disturbed).run()


class _Invocation:
    """One run of the controller, from its start to its end or its death."""

    def __init__(self, sim: Simulation, disturbed: bool) -> None:
        self.sim = sim
        self.rng = rng = sim.rng
        self.disk = sim.disk
        self.campaign = sim._make(sim.policy, random.Random(rng.random()))
        self.queue: list[tuple[float, int, Event | Instruction]] = []
        self.serial = itertools.count()
        self.reported: dict[str, str] = {}
        self.started_here: list[Run] = []
        self.trial_failures: Counter[str] = Counter()
        self.probed_s: dict[str, float] = {}
        self.untested = set(sim.disk.down)  # left behind down, and nobody has asked them yet in this invocation
        self.down_here_s: dict[str, float] = dict.fromkeys(sim.disk.down, sim.clock.monotonic_s)
        self.tests_failed: Counter[str] = Counter()  # probes and trials since the device went down, here
        self.results_here: set[str] = set()
        self.repeat_notes: Counter[str] = Counter()
        self.out: set[str] = set()  # devices that were taken out of service
        self.waited: defaultdict[str, int] = defaultdict(int)  # turns of others that a ready member has seen go by
        self.old: list[Event] = []
        self.journaled: set[AttemptId] = set()
        self.publishing: dict[str, tuple[AttemptId | None, Failure | None]] = {}
        self.copies: dict[str, Work] = {}  # by the work they are a copy of
        self.moved_to: dict[str, str] = {}
        self.refused: set[tuple[str, str]] = set()  # (work, device that could not take it over)
        self.stopped = False
        self.disk_full_after = rng.randint(1, 30) if disturbed and rng.random() < 0.2 else None
        self.kill_after = rng.randint(1, 150) if disturbed and rng.random() < 0.6 else None
        self.stop_after = rng.randint(1, 150) if disturbed and rng.random() < 0.5 else None
        self.early_timers = rng.random() < 0.2
        self.late_events = rng.random() < 0.4
        self.deliveries = 0

    def run(self) -> None:
        sim = self.sim
        for device in sim.devices:
            self._deliver(ev.DeviceAdded(device, earlier=sim.disk.down.get(device.id)))
        asked = set(self.probed_s)
        assert asked == set(sim.disk.down), f"promise 6: {set(sim.disk.down)} were down, {asked} were asked at once"
        todo = [self._as_work(work) for work in sim.works if sim.disk.outcome.get(work.work_id) != "ok"]
        half = self.rng.randint(0, len(todo))
        self._deliver(ev.PointsQueued(tuple(todo[:half])))
        self._later(self.rng.uniform(0.0, 60.0), ev.PointsQueued(tuple(todo[half:])))
        while self.queue:
            at_s, _, what = heapq.heappop(self.queue)
            sim.clock.advance_to(max(at_s, sim.clock.monotonic_s))
            if self.rng.random() < 0.01:
                sim.clock.jump(self.rng.uniform(-1e6, 1e6))  # nothing in the core may notice
            if isinstance(what, do.Attach):
                self._carry_out(what)
                continue
            self._deliver(what)  # type: ignore[arg-type]
            if self.kill_after is not None and self.deliveries >= self.kill_after:
                sim.injected["controller killed"] += 1
                return
            if self.stop_after is not None and self.deliveries >= self.stop_after:
                self.stop_after = self.stop_after + 20 if self.rng.random() < 0.3 else None
                self.stopped = True
                sim.injected["stopped by a person"] += 1
                self._deliver(ev.CancelRequested(self.rng.random() < 0.5))
        self._check_end([*todo, *self.copies.values()])

    def _as_work(self, work: Work) -> Work:
        claimed = self.disk.claimed.get(work.work_id, 0)
        in_flight = self.disk.in_flight.get(work.work_id, False)
        return work._replace(last_attempt=claimed, in_flight=in_flight)

    def _later(self, delay_s: float, what: Event | Instruction) -> None:
        heapq.heappush(self.queue, (self.sim.clock.monotonic_s + delay_s, next(self.serial), what))

    def _deliver(self, event: Event) -> None:
        sim = self.sim
        sim.events += 1
        self.deliveries += 1
        assert self.deliveries < MAX_EVENTS, "promise 1: this invocation does not end"
        now_s = sim.clock.monotonic_s
        before = {i.work_id: i.state for i in self.campaign.items.values() if isinstance(i.state, BackingOff)}
        if isinstance(event, ev.Journaled):
            self.journaled.add(event.attempt)
        self._witness(event)
        trials, failed = self._trials(), self._is_failure(event)
        instructions = self.campaign.handle(event, now_s)
        self.campaign.check_invariants()
        self._check_health(event, trials, instructions, now_s)
        kinds = [i.kind for i in instructions if isinstance(i, do.Note)]
        assert kinds.count("transport_failure") >= failed, f"promise 3: {event} is counted nowhere"
        if isinstance(event, ev.TimerFired):
            self._check_timer(event, before, now_s)
        self._check_turns(instructions)
        for instruction in instructions:
            self._carry_out(instruction)
        if self.late_events and getattr(event, "attempt", None) is not None:
            self._repeat_late(event)

    def _witness(self, event: Event) -> None:
        """Write down what the controller has learnt, as its journal and its records would."""
        if isinstance(event, ev.Published):
            attempt, failure = self.publishing[event.work_id]
            hole = failure is not None and failure.failure_class is FailureClass.NOT_ATTEMPTED
            outcome = "ok" if failure is None else "hole" if hole else "failed"
            assert self.disk.outcome.get(event.work_id) != "ok", f"promise 2: {event.work_id} was published ok before"
            self.disk.outcome[event.work_id] = outcome
            if outcome == "failed":
                self.disk.failed_in[event.work_id] = self.sim.invocation
            if attempt is not None:
                self.disk.in_flight[event.work_id] = False
        elif isinstance(event, ev.ResultArrived):
            failure_class = classify(event.evidence)
            if failure_class not in _REPEATABLE:
                self.results_here.add(event.attempt.work_id)

    def _repeat_late(self, event: Event) -> None:
        """An answer of an attempt that is over arrives once more, late (B30)."""
        if not isinstance(event, ev.Acked) and self.rng.random() < 0.2:
            self.old.append(event)
        if self.old and self.rng.random() < 0.1:
            late = self.rng.choice(self.old)
            attempt: AttemptId = late.attempt  # type: ignore[union-attr]
            item = self.campaign.items.get(attempt.work_id)
            if (item is None or item.attempt != attempt) and attempt not in self.campaign.evictions:
                self.sim.injected["late event"] += 1
                state = item.state if item else None
                made = self.campaign.handle(late, self.sim.clock.monotonic_s)
                self.campaign.check_invariants()
                assert all(isinstance(i, do.Note) for i in made), f"a late {late} led to {made}"
                assert (item.state if item else None) == state, f"a late {late} moved {attempt}"

    def _check_timer(self, event: ev.TimerFired, before: dict[str, Any], now_s: float) -> None:
        for work_id, state in before.items():
            if state.timer == event.timer:
                timer = self.campaign.timers.get(event.timer)
                moved = self.campaign.items.get(work_id) is None or self.campaign.items[work_id].state != state
                due = timer is None or now_s >= timer.at_s
                assert not moved or due, f"promise 10: {event.timer} had effect before its time"

    # -- the engine's part --------------------------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        sim, rng = self.sim, self.rng
        now_s = sim.clock.monotonic_s
        match instruction:
            case do.Note("retry", _, str(work_id), fields):
                self.repeat_notes[work_id] += fields["over"]
            case do.Note("device_down" | "probe_failed" | "quarantined" | "given_up" | "released" | "device_up"):
                self._witness_health(instruction)
            case do.Note():
                pass
            case do.SetTimer(timer, at_s):
                self._later(max(0.0, at_s - now_s), ev.TimerFired(timer))
                if self.early_timers and rng.random() < 0.3:
                    sim.injected["early timer"] += 1
                    self._later(max(0.0, at_s - now_s) * rng.random(), ev.TimerFired(timer))
            case do.Journal(attempt, device):
                if self._disk_is_full():
                    self._later(0.001, ev.JournalFailed(attempt, "no space left on device"))
                else:
                    highest = self.disk.claimed.get(attempt.work_id, 0)
                    assert attempt.n >= highest, f"attempt {attempt} after {highest}: attempts only grow"
                    self.disk.claimed[attempt.work_id] = attempt.n
                    self.disk.in_flight[attempt.work_id] = True
                    self._later(0.001, ev.Journaled(attempt))
            case do.RunExclusive(work_id, device):
                self._later(rng.uniform(1.0, 20.0), ev.ExclusiveEnded(work_id))
            case do.Parse(attempt):
                failure = None
                if rng.random() < sim.bad_luck:
                    failure = Failure(rng.choice([FailureClass.PARSE, FailureClass.MEASUREMENT]), "no rows")
                self._later(0.001, ev.Parsed(attempt, failure))
            case do.Publish(work_id, attempt, failure):
                self.publishing[work_id] = attempt, failure
                self._check_hole(work_id, failure)
                if self._disk_is_full():
                    self._later(0.001, ev.PublishFailed(work_id, "no space left on device"))
                else:
                    self._later(0.001, ev.Published(work_id))
            case do.ReportDone(work_id, outcome, _):
                assert work_id not in self.reported, f"promise 1: {work_id} was reported twice"
                self.reported[work_id] = outcome
                copy = self.copies.get(work_id)
                over = copy is None or copy.work_id in self.reported or self.stopped
                assert over, f"promise 4: {work_id} is over, and its copy {copy} is not"
            case do.Ack(attempt, device):
                # the result may be forgotten only once a record is on disk
                assert self.disk.outcome.get(attempt.work_id) in ("ok", "failed"), f"{attempt} acked without a record"
                self._later(0.001, sim.fakes[device].answer(instruction, now_s))  # type: ignore[arg-type]
            case do.Probe(device, call):
                if not call:
                    self._check_probe(device, now_s)
                self._later(rng.uniform(0.01, 5.0), sim.fakes[device].answer(instruction, now_s))  # type: ignore[arg-type]
            case do.Move():
                self._move(instruction, now_s)
            case do.StartAttempt() | do.AskStatus() | do.Attach() | do.Kill():
                self._ask_device(instruction, now_s)

    def _ask_device(self, instruction: do.StartAttempt | do.AskStatus | do.Attach | do.Kill, now_s: float) -> None:
        attempt, device = instruction.attempt, instruction.device
        fake = self.sim.fakes[device]
        home = self.sim.home.get(attempt.work_id, device)
        assert home == device, f"promise 4: {attempt} of {home} went to {device}"
        assert device not in self.untested, f"promise 6: {instruction} on {device}, which was down and not asked"
        if isinstance(instruction, do.StartAttempt):
            fake.tick(now_s)
            self._check_start(attempt, fake)
        known = len(fake.runs)
        answer = fake.answer(instruction, now_s)
        for run in fake.runs[known:]:
            self._check_execution(run, fake)
        if isinstance(answer, float):
            self._later(answer - now_s, instruction)
        else:
            if isinstance(answer, ev.TransportFailed):
                self.sim.injected[f"{type(instruction).__name__} failed"] += 1
            self._later(self.rng.uniform(0.001, 0.5), answer)

    def _move(self, move: do.Move, now_s: float) -> None:
        """Look at the device that is to stand in, and make the copy under a name of its own."""
        sim, work_id, to_device = self.sim, move.work_id, move.to_device
        self._check_move(move)
        delay_s = self.rng.uniform(0.01, 5.0)
        answer = sim.fakes[to_device].answer(do.Probe(to_device), now_s)
        assert isinstance(answer, ev.ProbeAnswered)
        if not answer.ok:
            self.refused.add((work_id, to_device))
            self._later(delay_s, ev.MoveRefused(work_id, to_device, answer.error))
            return
        name = f"{work_id}@{to_device}"
        sim.injected["moved"] += 1
        self.moved_to[work_id] = name
        sim.home[name] = to_device
        if self.disk.outcome.get(name) == "ok":
            self._later(delay_s, ev.Moved(work_id, to_device, name, None))
            return
        copy = self.copies[work_id] = self._as_work(Work(name, to_device, position=1000))
        self._later(delay_s, ev.Moved(work_id, to_device, name, copy))

    def _disk_is_full(self) -> bool:
        if self.disk_full_after is None:
            return False
        self.disk_full_after -= 1
        if self.disk_full_after > 0:
            return False
        self.stopped = True
        self.sim.injected["disk full"] += 1
        return True

    # -- promises, as things happen -----------------------------------------------------------------------------------

    def _check_start(self, attempt: AttemptId, fake: FakeDevice) -> None:
        assert attempt in self.journaled, f"promise 7: {attempt} started before its claim was on disk"
        for run in fake.runs:
            if run.attempt.work_id == attempt.work_id and run.attempt.n != attempt.n:
                assert not run.alive, f"promise 9: {attempt} started while {run.attempt} lives"
        assert attempt.work_id not in self.results_here, f"promise 2: {attempt} started after a result"

    def _check_execution(self, run: Run, fake: FakeDevice) -> None:
        """A new run really began: every earlier one of the same work must have ended without a result."""
        work_id = run.attempt.work_id
        for other in fake.runs:
            if other is not run and other.slot == run.slot and other.alive:
                raise AssertionError(f"promise 9: {run.attempt} and {other.attempt} share slot {run.slot}")
        if work_id not in self.sim.home:
            return
        key = (self.sim.invocation, work_id)
        self.sim.starts_by_invocation[key] += 1
        earlier = [r for r in fake.runs if r.attempt.work_id == work_id and r is not run]
        for other in earlier:
            if other.state == "finished" and classify(other.evidence) not in _REPEATABLE:
                failed_in = self.disk.failed_in.get(work_id, self.sim.invocation)
                assert failed_in < self.sim.invocation, (
                    f"promise 2: {run.attempt} repeats {other.attempt}, which ended with {other.evidence}"
                )
        repeats = self.sim.starts_by_invocation[key] - 1
        assert repeats <= self.repeat_notes[work_id], f"promise 3: repeat of {work_id} without a line in the ledger"
        preempted = sum(classify(r.evidence) is FailureClass.PREEMPTED for r in earlier if r in self.started_here)
        assert preempted <= MAX_PREEMPTIONS, f"promise 3: {work_id} was preempted {preempted} times and goes on"
        costly = sum(r in self.started_here for r in earlier) - preempted - self.trial_failures[work_id]
        allowed = self.sim.policy.retry.max_attempts - 1
        assert costly <= allowed, f"promise 3: {work_id} was tried {costly + 1} times, {allowed + 1} are allowed"
        self.started_here.append(run)

    def _check_move(self, move: do.Move) -> None:
        work_id, to_device = move.work_id, move.to_device
        item, target = self.campaign.items[work_id], self.campaign.lanes[to_device]
        assert work_id in {w.work_id for w in self.sim.works}, f"promise 4: {work_id} is a copy and moves on"
        assert to_device in item.lane.device.failover_to, f"promise 4: nobody lets {work_id} move to {to_device}"
        assert to_device != item.lane.id, f"promise 4: {work_id} moves to its own device"
        assert not self.stopped, f"promise 4: {work_id} moves although the run was stopped"
        out, state = target.out_of_service, target.breaker.state
        assert out is None, f"promise 4: {work_id} moves to {to_device}, which is out"
        down = isinstance(state, Open | Probing)  # on trial by now: another point of this event was quicker
        assert not down, f"promise 4: {work_id} moves to {to_device}, which is {state}"
        used_up = item.repeats >= self.sim.policy.retry.max_attempts or item.preemptions > MAX_PREEMPTIONS
        hopeless = item.lane.out_of_service is not None
        assert used_up or hopeless, f"promise 4: {work_id} moves and could be measured at home"

    def _check_hole(self, work_id: str, failure: Failure | None) -> None:
        """A hole of a device with a healthy stand-in has moved, drained ones too."""
        if failure is None or failure.failure_class is not FailureClass.NOT_ATTEMPTED:
            return
        if failure.evidence.get("moved_to") is not None:
            assert failure.evidence["moved_to"] == self.moved_to[work_id]
            return
        lane = self.campaign.items[work_id].lane
        if self.stopped or "holder" in failure.evidence or "@" in work_id:
            return
        for name in lane.device.failover_to:
            target = self.campaign.lanes[name]
            well = target.out_of_service is None and isinstance(target.breaker.state, Closed)
            assert not well or (work_id, name) in self.refused, f"promise 4: {work_id} could have moved to {name}"

    def _check_turns(self, instructions: list[Instruction]) -> None:
        """A live member waits at most (members - 1) turns of others (promise 5)."""
        for instruction in instructions:
            if not isinstance(instruction, do.Journal | do.RunExclusive | do.StartAttempt):
                continue
            attempt = getattr(instruction, "attempt", None)
            item = self.campaign.items[attempt.work_id if attempt else instruction.work_id]  # type: ignore[union-attr]
            if self.campaign.last_move(item) is not Turn:
                continue
            members = item.lane.group.members
            self.waited[item.lane.id] = 0
            if item.doubtful:
                continue  # a question about a job that has had its turn
            for other in members:
                if other is not item.lane and other.is_ready():
                    self.waited[other.id] += 1
                    saw = self.waited[other.id]
                    assert saw <= len(members) - 1, f"promise 5: {other.id} saw {saw} turns go by"
        for lane in self.campaign.lanes.values():
            if not lane.is_ready():
                self.waited[lane.id] = 0

    def _check_probe(self, device: str, now_s: float) -> None:
        """One probe per cooldown (promise 6)."""
        since_s = now_s - self.probed_s.get(device, -1e9)
        cooldown_s = self.campaign.lanes[device].device.recovery_after_s
        assert since_s >= cooldown_s, f"promise 6: {device} was probed again after {since_s:.1f} s of {cooldown_s} s"
        self.probed_s[device] = now_s

    def _is_failure(self, event: Event) -> bool:
        """A failure on the way to an attempt that somebody still wants."""
        if not isinstance(event, ev.TransportFailed):
            return False
        item = self.campaign.items.get(event.attempt.work_id)
        wanted = item is not None and item.attempt == event.attempt
        return wanted and not (isinstance(item.state, Killing) and item.state.cancel)  # type: ignore[union-attr]

    def _trials(self) -> list[tuple[Lane, str, int]]:
        """The trial points of half-open breakers, and what transport has cost each by now."""
        found = []
        for lane in self.campaign.lanes.values():
            if isinstance(state := lane.breaker.state, Trial):
                found.append((lane, state.work_id, self.campaign.items[state.work_id].repeats))
        return found

    def _check_health(
        self, event: Event, trials: list[tuple[Lane, str, int]], instructions: list[Instruction], now_s: float
    ) -> None:
        """What this event did to the health of devices (promise 6)."""
        if isinstance(event, ev.ProbeAnswered):
            if event.ok:
                self.untested.discard(event.device)
            else:
                self.tests_failed[event.device] += 1
                noted = any(isinstance(i, do.Note) and i.kind in ("probe_failed", "unanswered") for i in instructions)
                assert noted or self.campaign.lanes[event.device].reached, (
                    f"promise 6: the failed probe of {event.device} is written down nowhere"
                )
        for lane, work_id, repeats in trials:
            if isinstance(lane.breaker.state, Open):
                self.trial_failures[work_id] += 1
                self.tests_failed[lane.id] += 1
                item = self.campaign.items.get(work_id)
                asked = isinstance(event, ev.StatusAnswered)  # what is learnt of an earlier failure is paid for
                assert item is None or asked or item.repeats == repeats, (
                    f"promise 6: the trial cost {work_id} an attempt"
                )
        for lane in self.campaign.lanes.values():
            since_s = lane.breaker.down_here_since_s
            before_s = self.down_here_s.get(lane.id)
            if since_s is None and before_s is not None:
                assert isinstance(event, ev.ResultArrived), f"promise 6: {event} ended the downtime of {lane.id}"
                assert classify(event.evidence) not in _REPEATABLE, f"promise 6: {event} is no completed run"
                self.tests_failed[lane.id] = 0
                del self.down_here_s[lane.id]
            elif since_s is not None:
                assert before_s in (None, since_s), f"promise 6: {lane.id} is down since {since_s}, no more {before_s}"
                self.down_here_s[lane.id] = since_s
            if (out := lane.out_of_service) is not None and lane.id not in self.out:
                self.out.add(lane.id)
                self._check_taken_out(lane, out, event, now_s)

    def _check_taken_out(self, lane: Lane, out: OutOfService, event: Event, now_s: float) -> None:
        if out.cause is FailureClass.DEVICE:
            return
        here_s = now_s - self.down_here_s[lane.id]
        limit_s = lane.device.give_up_after_s
        assert limit_s is not None, f"promise 6: {lane.id} was given up and never may be"
        assert here_s >= limit_s, f"promise 6: {lane.id} was given up after {here_s} s here"
        assert self.tests_failed[lane.id], f"promise 6: {lane.id} was given up and nobody had tested it"

    def _witness_health(self, note: do.Note) -> None:
        """Write down what becomes of a device, as the engine's journal would."""
        down, device = self.disk.down, note.device
        match note.kind:
            case "device_up":
                assert not down[device].quarantined, f"promise 6: {note} ends a quarantine"
                del down[device]
            case "device_down" | "released":
                down[device] = ev.Earlier(note.fields["reason"])
            case "quarantined":
                down[device] = ev.Earlier(note.fields["reason"], quarantined=True)
        if note.kind != "device_up":
            assert device in down, f"promise 6: {note} of a device that the journal takes for well"
            # what a person is told of the downtime comes from a wall clock: any number may come back
            down[device] = down[device]._replace(down_s=self.rng.uniform(0.0, 1e6))

    def _check_end(self, todo: list[Work]) -> None:
        """Promise 1: every planned point ended as exactly one of result, failed result, hole, or not started."""
        missing = [work.work_id for work in todo if work.work_id not in self.reported]
        assert not missing, f"promise 1: {missing} never ended: {[self.campaign.explain(m, 0.0) for m in missing]}"
        assert not self.campaign.open_work()
        for work in todo:
            outcome = self.reported[work.work_id]
            if outcome == "cancelled":
                assert self.stopped, f"promise 1: {work.work_id} was cancelled and nobody stopped"
            elif not work.exclusive:
                recorded = self.disk.outcome.get(work.work_id)
                assert recorded == outcome, f"promise 1: {work.work_id} reported {outcome}, record says {recorded}"
