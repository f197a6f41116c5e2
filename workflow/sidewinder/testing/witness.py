"""A witness: what somebody outside sees of a simulated campaign, held against the promises of docs/design.md §2.

It sees what really ran on the fake devices, what came to lie on the fake disk, which instructions went where and what
people were told. It believes nothing that the core says of itself where the truth can be had.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.core.breaker import Closed, Open, Probing, Trial
from sidewinder.core.events import Event, Work
from sidewinder.core.instructions import Instruction
from sidewinder.core.lane import Lane, OutOfService
from sidewinder.core.lifecycle import Asking, BackingOff, Killing, Running, Turn
from sidewinder.core.policy import MAX_PREEMPTIONS, classify
from sidewinder.model import AttemptId, Evidence, Failure, FailureClass
from sidewinder.testing.device import FakeDevice, Run
from sidewinder.testing.disk import outcome_of

if TYPE_CHECKING:
    from sidewinder.testing.invocation import Invocation
    from sidewinder.testing.simulation import Simulation

_REPEATABLE = (FailureClass.TRANSPORT, FailureClass.PREEMPTED)
_ANSWERS = (ev.AttemptStarted, ev.StatusAnswered, ev.ResultArrived, ev.AttemptBusy)
_LOOKS = (ev.AttemptStarted, ev.StatusAnswered, ev.ResultArrived, ev.KillProven, ev.AttemptDied)
_HEALTH = frozenset({"device_down", "probe_failed", "quarantined", "given_up", "released", "device_up"})


def class_of(run: Run) -> FailureClass | None:
    """What came of a run that is over."""
    return run.death.failure_class if run.death is not None else classify(run.evidence)


def is_ours(run: Run) -> bool:
    """A left-over of a controller that nobody remembers takes part in no promise about turns."""
    return not run.attempt.work_id.startswith("leftover-")


class Witness:
    """Of one invocation. Every method raises ``AssertionError`` that begins with the promise that was broken."""

    def __init__(self, invocation: Invocation) -> None:
        self.it, self.sim = invocation, invocation.sim
        self.campaign, self.disk = invocation.campaign, invocation.disk
        self.planned = {work.work_id for work in self.sim.works}
        self.reported: dict[str, str] = {}
        self.started_here: list[Run] = []
        self.starts: Counter[str] = Counter()  # executions of a work that began in this invocation
        self.repeat_notes: Counter[str] = Counter()
        self.taken_over: dict[str, str] = {}  # work -> the last note that said so
        self.results: dict[AttemptId, Evidence] = {}  # that arrived here
        self.results_here: set[str] = set()  # works with one that is never to be repeated
        self.verdicts: dict[AttemptId, Failure | None] = {}
        self.journaled: set[AttemptId] = set()
        #: attempts that may exist on their device: somebody started them, and since then nobody could look
        self.unknown: dict[str, int] = {work_id: f.n for work_id, f in invocation.replay.in_flight.items()}
        self.inherited = {AttemptId(w, n) for w, n in self.unknown.items()}
        self.broken: set[AttemptId] = set()  # ... whose link broke while they ran, and that was told
        self.healed_runs: dict[AttemptId, Run] = {}  # whose link broke and came back before anybody was told
        self.answered: Counter[str] = Counter()  # by device: the last contact was an answer
        self.exclusive_on: dict[str, str] = {}  # ordinary jobs that run, and on which device
        self.refused: set[tuple[str, str]] = set()  # (work, device that could not take it over)
        self.moved_to: dict[str, str] = {}
        self.timers: dict[str, float] = {}  # when each is due
        # health
        self.down = dict(invocation.down)
        self.probed_s: dict[str, float] = {}
        self.half_open: set[str] = set()  # down, and the last probe passed
        self.called: dict[str, bool] = {}  # and whether it was heard of meanwhile
        self.probing: dict[str, bool] = {}  # the same of the one probe of a cooldown
        self.untested = set(self.down)  # left behind down, and nobody has asked them yet in this invocation
        self.down_here_s: dict[str, float] = dict.fromkeys(self.down, self.sim.clock.monotonic_s)
        self.tests_failed: Counter[str] = Counter()  # probes and trials since the device went down, here
        self.trial_failures: Counter[str] = Counter()
        self.out: set[str] = set()  # devices that were taken out of service
        self.seen_turns: defaultdict[str, int] = defaultdict(int)  # of others, by a member that was ready
        # before an event
        self._backing_off: dict[str, BackingOff] = {}
        self._trials: list[tuple[Lane, str, int]] = []
        self._failed = False

    # -- events -------------------------------------------------------------------------------------------------------

    def devices_added(self) -> None:
        asked, down = set(self.probed_s), {d for d in self.down if d in self.campaign.lanes}
        assert asked == down, f"promise 6: {down} were down, {asked} were asked at once"

    def before(self, event: Event) -> None:
        self._backing_off = {i.work_id: i.state for i in self.campaign.items.values() if type(i.state) is BackingOff}
        self._trials = self._trials_now()
        self._failed = self._is_failure(event)
        if isinstance(event, ev.DeviceAdded) and event.earlier is not None:
            self.down_here_s[event.device.id] = self.sim.clock.monotonic_s
        if isinstance(event, ev.ExclusiveEnded):
            del self.exclusive_on[event.work_id]
        elif isinstance(event, ev.ProbeAnswered):
            overtaken = (self.called if event.device in self.called else self.probing).pop(event.device, False)
            self.answered[event.device] = int(event.ok or overtaken)
        attempt: AttemptId | None = getattr(event, "attempt", None)
        if attempt is None or attempt.work_id not in self.sim.home:
            return
        device = self.sim.home[attempt.work_id]
        if isinstance(event, _ANSWERS) or (isinstance(event, ev.AttemptDied) and self._is_answer(event)):
            self.answered[device] = 1
            for asked in (self.called, self.probing):
                if device in asked:
                    asked[device] = True
        if isinstance(event, ev.Journaled):
            self.journaled.add(attempt)
        elif isinstance(event, ev.TransportFailed):
            self.answered[device] = 0
            for asked in (self.called, self.probing):
                if device in asked:
                    asked[device] = False
            self.healed_runs.pop(attempt, None)
            item = self.campaign.items.get(attempt.work_id)
            if item is not None and item.attempt == attempt:
                self.unknown[attempt.work_id] = attempt.n
                if type(item.state).__name__ == "Running":
                    self.broken.add(attempt)
        elif isinstance(event, _LOOKS) and self.unknown.get(attempt.work_id) == attempt.n:
            del self.unknown[attempt.work_id]
        if isinstance(event, ev.ResultArrived):
            self.results[attempt] = event.evidence
            if self._is_final(attempt, event.evidence):
                self.results_here.add(attempt.work_id)
        elif isinstance(event, ev.AttemptDied):
            if event.failure.failure_class not in _REPEATABLE:
                self.results_here.add(attempt.work_id)
        elif isinstance(event, ev.Parsed):
            self.verdicts[attempt] = event.failure

    def _is_answer(self, event: ev.AttemptDied) -> bool:
        """The device spoke, not its platform alone: it was asked, or what it ran came to an end of its own."""
        item = self.campaign.items.get(event.attempt.work_id)
        is_asked = item is not None and item.attempt == event.attempt and type(item.state) is Asking
        return is_asked or event.failure.failure_class not in _REPEATABLE

    def after(self, event: Event, made: list[Instruction]) -> None:
        now_s = self.sim.clock.monotonic_s
        self._check_health(event, made, now_s)
        kinds = [i.kind for i in made if isinstance(i, do.Note)]
        assert kinds.count("transport_failure") >= self._failed, f"promise 3: {event} is counted nowhere"
        if isinstance(event, ev.TimerFired):
            self._check_timer(event, now_s)
        self._check_turns(made)

    def noted(self, note: do.Note) -> None:
        if note.kind == "retry":
            self.repeat_notes[str(note.work_id)] += note.fields["over"]
        elif note.kind in ("reattached", "adopted"):
            self.taken_over[str(note.work_id)] = note.kind
        elif note.kind in _HEALTH:
            self._health_noted(note)

    # -- instructions -------------------------------------------------------------------------------------------------

    def asks(self, instruction: do.StartAttempt | do.AskStatus | do.Attach | do.Kill) -> None:
        attempt, device = instruction.attempt, instruction.device
        home = self.sim.home.get(attempt.work_id, device)
        assert home == device, f"promise 4: {attempt} of {home} went to {device}"
        assert device not in self.untested, f"promise 6: {instruction} on {device}, which was down and not asked"
        fake = self.sim.fakes[device]
        if isinstance(instruction, do.Kill) and not self.it.stopped:
            item, run = self.campaign.items.get(attempt.work_id), fake.find(attempt)
            if item is not None and item.attempt == attempt and run is not None:
                run.tick(self.sim.clock.monotonic_s)
                assert run.state == "lost", f"promise 8: {attempt} is killed, {run.state} on a device that survived"
        if not isinstance(instruction, do.StartAttempt):
            return
        fake.tick(self.sim.clock.monotonic_s)
        assert attempt in self.journaled, f"promise 7: {attempt} started before its claim was on disk"
        for run in fake.runs:
            if run.attempt.work_id == attempt.work_id and run.attempt.n != attempt.n:
                assert not run.alive, f"promise 9: {attempt} started while {run.attempt} lives"
        assert attempt.work_id not in self.results_here, f"promise 2: {attempt} started after a result"
        unknown = self.unknown.get(attempt.work_id)
        assert unknown is None, f"promise 11: {attempt} started, and nobody could look what became of attempt {unknown}"

    def execution(self, run: Run, fake: FakeDevice) -> None:
        """A new run really began: every earlier one of the same work must have ended without a result."""
        work_id, invocation = run.attempt.work_id, self.sim.invocation
        for other in fake.runs:
            if other is not run and other.slot == run.slot and other.alive:
                raise AssertionError(f"promise 9: {run.attempt} and {other.attempt} share slot {run.slot}")
        if work_id not in self.sim.home:
            return
        self._check_group(fake.id, run)
        self.sim.began_in[run.attempt] = invocation
        self.starts[work_id] += 1
        earlier = [r for r in fake.runs if r.attempt.work_id == work_id and r is not run]
        for other in earlier:
            if self._is_over_for_good(other):
                again = self.disk.failed_in.get(work_id, invocation) < invocation  # a failed point is open
                end = other.death or other.evidence
                assert again, f"promise 2: {run.attempt} repeats {other.attempt}, which ended with {end}"
        repeats = self.starts[work_id] - 1
        assert repeats <= self.repeat_notes[work_id], f"promise 3: repeat of {work_id} without a line in the ledger"
        preempted = sum(class_of(r) is FailureClass.PREEMPTED for r in earlier if r in self.started_here)
        assert preempted <= MAX_PREEMPTIONS, f"promise 3: {work_id} was preempted {preempted} times and goes on"
        costly = sum(r in self.started_here for r in earlier) - preempted - self.trial_failures[work_id]
        allowed = self._attempts_of(fake.id) - 1
        assert costly <= allowed, f"promise 3: {work_id} was tried {costly + 1} times, {allowed + 1} are allowed"
        self.started_here.append(run)

    def _is_over_for_good(self, run: Run) -> bool:
        if run.death is not None:
            return run.death.failure_class not in _REPEATABLE
        return run.state == "finished" and self._is_final(run.attempt, run.evidence)

    def _is_final(self, attempt: AttemptId, evidence: Evidence) -> bool:
        """Whether it may be repeated by no means. That a device was unfit in an earlier invocation says nothing of it
        today."""
        found = classify(evidence)
        is_old = self.sim.began_in.get(attempt, 0) < self.sim.invocation
        return found not in _REPEATABLE and not (found is FailureClass.DEVICE and is_old)

    def exclusive(self, work_id: str, device: str) -> None:
        self._check_group(device, None)
        self.exclusive_on[work_id] = device

    def _check_group(self, device: str, new: Run | None) -> None:
        """How many really run on shared silicon, whatever the controller believes."""
        sim, lane = self.sim, self.campaign.lanes[device]
        name = lane.device.resource_group
        if name is None:
            return
        now_s = sim.clock.monotonic_s
        running: list[Any] = [job for job, at in self.exclusive_on.items() if sim.fakes[at].id in self._members(name)]
        for member in self._members(name):
            fake = sim.fakes[member]
            fake.tick(now_s)
            for run in fake.runs:
                if run is not new and run.alive and is_ours(run) and not self._is_beyond_reach(run, now_s):
                    running.append(run.attempt)
        limits = [self.campaign.lanes[m].device.group_max_concurrency for m in self._members(name)]
        limit = max(1, min((x for x in limits if x is not None), default=1))
        what = new.attempt if new is not None else "an ordinary job"
        assert len(running) < limit, f"promise 5: {what} began while {running} ran in group {name} of {limit}"

    def _members(self, group: str) -> list[str]:
        return [name for name, lane in self.campaign.lanes.items() if lane.device.resource_group == group]

    def _is_beyond_reach(self, run: Run, now_s: float) -> bool:
        """What outlived its runner, and with it every lease: nobody could promise anything about that."""
        return run.state == "lost" and now_s >= run.heard_s + self.sim.outlives_s

    def healed(self, attempt: AttemptId) -> None:
        run = self.sim.fakes[self.sim.home[attempt.work_id]].find(attempt)
        assert run is not None
        self.healed_runs[attempt] = run

    def published(self, publish: do.Publish) -> None:
        work_id, attempt, failure = publish
        outcome = outcome_of(failure)
        if outcome == "hole":
            self._check_hole(work_id, failure)
            return
        assert attempt is not None, f"promise 11: {work_id} is published {outcome} and was never measured"
        assert self.unknown.get(work_id) != attempt.n, f"promise 11: {attempt} could not be looked at, and is {outcome}"
        run = self.sim.fakes[self.sim.home[work_id]].find(attempt)
        if outcome == "ok":
            truth = run is not None and run.state == "finished" and classify(run.evidence) is None
            assert truth, f"promise 11: {attempt} is published, and what ran was {run}"
            assert attempt in self.results, f"promise 11: {attempt} is published, and no result ever arrived"
            assert attempt in self.verdicts, f"promise 11: {attempt} is published, and nobody read its output"
            assert self.verdicts[attempt] is None, f"promise 1: {attempt} is published ok: {self.verdicts[attempt]}"
        if attempt in self.results:
            self._check_taken_over(attempt)

    def _check_taken_over(self, attempt: AttemptId) -> None:
        """Each re-attach and adoption is written down (promise 3)."""
        here = self.sim.began_in.get(attempt) == self.sim.invocation
        told = self.taken_over.get(attempt.work_id)
        if not here and attempt in self.inherited:
            assert told is not None, f"promise 3: {attempt} of an earlier invocation was adopted in silence"
        elif attempt in self.broken:
            assert told is not None, f"promise 3: {attempt} was attached to again in silence"

    def reported_done(self, done: do.ReportDone) -> None:
        work_id, outcome = done.work_id, done.outcome
        assert work_id not in self.reported, f"promise 1: {work_id} was reported twice"
        self.reported[work_id] = outcome
        copy = self.it.copies.get(work_id)
        over = copy is None or copy.work_id in self.reported or self.it.stopped
        assert over, f"promise 4: {work_id} is over, and its copy {copy} is not"
        if outcome in ("ok", "failed") and work_id in self.sim.home:
            for run in self.sim.fakes[self.sim.home[work_id]].runs:
                if run.attempt.work_id == work_id:
                    run.tick(self.sim.clock.monotonic_s)
                    assert not run.alive, f"promise 7: {work_id} is over, and {run.attempt} still runs"

    def acked(self, attempt: AttemptId) -> None:
        record = self.disk.records.get(attempt.work_id)
        known = record is not None and record.outcome in ("ok", "failed")
        assert known, f"promise 7: {attempt} was acknowledged without a record on disk"

    def moves(self, move: do.Move) -> None:
        work_id, to_device = move.work_id, move.to_device
        item, target = self.campaign.items[work_id], self.campaign.lanes[to_device]
        assert work_id in self.planned, f"promise 4: {work_id} is a copy and moves on"
        assert to_device in item.lane.device.failover_to, f"promise 4: nobody lets {work_id} move to {to_device}"
        assert to_device != item.lane.id, f"promise 4: {work_id} moves to its own device"
        assert not self.it.stopped, f"promise 4: {work_id} moves although the run was stopped"
        out, state = target.out_of_service, target.breaker.state
        assert out is None, f"promise 4: {work_id} moves to {to_device}, which is out"
        down = isinstance(state, Open | Probing)  # on trial by now: another point of this event was quicker
        assert not down, f"promise 4: {work_id} moves to {to_device}, which is {state}"
        used_up = item.repeats >= self._attempts_of(item.lane.id) or item.preemptions > MAX_PREEMPTIONS
        hopeless = item.lane.out_of_service is not None
        assert used_up or hopeless, f"promise 4: {work_id} moves and could be measured at home"

    def _attempts_of(self, device: str) -> int:
        return self.sim.policies[device].retry.max_attempts

    def _check_hole(self, work_id: str, failure: Failure | None) -> None:
        """It says why, and one of a device with a healthy stand-in has moved, drained ones too."""
        assert failure is not None
        assert failure.evidence.get("reason"), f"promise 11: {work_id} is a hole without a reason"
        if failure.evidence.get("moved_to") is not None:
            moved_to = self.moved_to[work_id]
            assert failure.evidence["moved_to"] == moved_to, f"promise 4: {work_id} went to {moved_to}, says {failure}"
            return
        lane = self.campaign.items[work_id].lane
        if self.it.stopped or "holder" in failure.evidence or "@" in work_id:
            return
        for name in lane.device.failover_to:
            target = self.campaign.lanes.get(name)
            well = target is not None and target.out_of_service is None and isinstance(target.breaker.state, Closed)
            assert not well or (work_id, name) in self.refused, f"promise 4: {work_id} could have moved to {name}"

    # -- turns and timers ---------------------------------------------------------------------------------------------

    def _check_turns(self, made: list[Instruction]) -> None:
        """A live member waits at most (members - 1) turns of others, and for no dead one (promise 5)."""
        for instruction in made:
            if not isinstance(instruction, do.Journal | do.RunExclusive | do.StartAttempt):
                continue
            attempt = getattr(instruction, "attempt", None)
            item = self.campaign.items[attempt.work_id if attempt else instruction.work_id]  # type: ignore[union-attr]
            if self.campaign.last_move(item) is not Turn:
                continue
            lane, members = item.lane, item.lane.group.members
            if isinstance(instruction, do.Journal) and len(members) > 1:
                assert self.answered[lane.id], f"promise 5: {lane.id} has a turn, and nobody knows whether it answers"
            self.seen_turns[lane.id] = 0
            if item.doubtful:
                continue  # a question about a job that has had its turn
            for other in members:
                if other is not lane and other.is_ready():
                    self.seen_turns[other.id] += 1
                    saw = self.seen_turns[other.id]
                    assert saw <= len(members) - 1, f"promise 5: {other.id} saw {saw} turns go by"
        for lane in self.campaign.lanes.values():
            if not lane.is_ready():
                self.seen_turns[lane.id] = 0

    def _check_timer(self, event: ev.TimerFired, now_s: float) -> None:
        for work_id, state in self._backing_off.items():
            item = self.campaign.items.get(work_id)
            if item is None or item.state != state:
                due_s = self.timers[state.timer]
                assert now_s >= due_s, f"promise 10: {event.timer} moved {work_id}, which waits until {due_s}"

    # -- health -------------------------------------------------------------------------------------------------------

    def probed(self, device: str, *, call: bool) -> None:
        """One probe per cooldown (promise 6). Who shares a group is called too, one call at a time."""
        now_s = self.sim.clock.monotonic_s
        if call:
            assert device not in self.called, f"promise 6: {device} was called twice at once"
            down = device in self.down and device not in self.half_open
            assert not down, f"promise 6: {device} is down and was called before its cooldown"
            self.called[device] = False
            return
        since_s = now_s - self.probed_s.get(device, -1e9)
        cooldown_s = self.campaign.lanes[device].device.recovery_after_s
        assert since_s >= cooldown_s, f"promise 6: {device} was probed again after {since_s:.1f} s of {cooldown_s} s"
        self.probed_s[device] = now_s
        self.probing[device] = False

    def _is_failure(self, event: Event) -> bool:
        """A failure on the way to an attempt that somebody still wants."""
        if not isinstance(event, ev.TransportFailed | ev.AttemptDied):
            return False
        item = self.campaign.items.get(event.attempt.work_id)
        if isinstance(event, ev.AttemptDied) and (
            event.failure.failure_class is not FailureClass.TRANSPORT
            or item is None
            or item.inherited
            or type(item.state) is not Running
        ):
            return False  # the device was asked, or what it said of an earlier invocation's run is nobody's failure
        wanted = item is not None and item.attempt == event.attempt
        return wanted and not (isinstance(item.state, Killing) and item.state.cancel)  # type: ignore[union-attr]

    def _trials_now(self) -> list[tuple[Lane, str, int]]:
        """The trial points of half-open breakers, and what transport has cost each by now."""
        found = []
        for lane in self.campaign.lanes.values():
            if isinstance(state := lane.breaker.state, Trial):
                found.append((lane, state.work_id, self.campaign.items[state.work_id].repeats))
        return found

    def _check_health(self, event: Event, made: list[Instruction], now_s: float) -> None:
        """What this event did to the health of devices (promise 6)."""
        if isinstance(event, ev.ProbeAnswered):
            if event.ok:
                self.untested.discard(event.device)
                self.half_open.add(event.device)
            else:
                self.tests_failed[event.device] += 1
                noted = any(isinstance(i, do.Note) and i.kind in ("probe_failed", "unanswered") for i in made)
                is_out = self.campaign.lanes[event.device].out_of_service is not None
                assert noted or is_out, f"promise 6: the failed probe of {event.device} is written down nowhere"
        for lane, work_id, repeats in self._trials:
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
                known = isinstance(event, ev.ResultArrived | ev.AttemptDied)
                assert known, f"promise 6: {event} ended the downtime of {lane.id}"
                assert _class_in(event) not in _REPEATABLE, f"promise 6: {event} is no completed run"
                self.tests_failed[lane.id] = 0
                del self.down_here_s[lane.id]
            elif since_s is not None:
                assert before_s in (None, since_s), f"promise 6: {lane.id} is down since {since_s}, no more {before_s}"
                self.down_here_s[lane.id] = since_s
            if (out := lane.out_of_service) is not None and lane.id not in self.out:
                self.out.add(lane.id)
                self._check_taken_out(lane, out, now_s)

    def _check_taken_out(self, lane: Lane, out: OutOfService, now_s: float) -> None:
        if out.cause is FailureClass.DEVICE:
            return
        here_s = now_s - self.down_here_s[lane.id]
        limit_s = lane.device.give_up_after_s
        assert limit_s is not None, f"promise 6: {lane.id} was given up and never may be"
        assert here_s >= limit_s, f"promise 6: {lane.id} was given up after {here_s} s here"
        assert self.tests_failed[lane.id], f"promise 6: {lane.id} was given up and nobody had tested it"

    def _health_noted(self, note: do.Note) -> None:
        down, device = self.down, note.device
        match note.kind:
            case "device_up":
                assert not down[device].quarantined, f"promise 6: {note} ends a quarantine"
                del down[device]
            case "device_down":
                self.half_open.discard(device)
                down[device] = ev.Earlier(note.fields["reason"])
            case "probe_failed":
                self.half_open.discard(device)
            case "released":
                down[device] = ev.Earlier(note.fields["reason"])
            case "quarantined":
                down[device] = ev.Earlier(note.fields["reason"], quarantined=True)
        if note.kind != "device_up":
            assert device in down, f"promise 6: {note} of a device that the journal takes for well"

    # -- the end ------------------------------------------------------------------------------------------------------

    def ended(self, todo: list[Work]) -> None:
        """Promise 1: every planned point ended as exactly one of result, failed result, hole, or not started."""
        missing = [work.work_id for work in todo if work.work_id not in self.reported]
        assert not missing, f"promise 1: {missing} never ended: {[self.campaign.explain(m, 0.0) for m in missing]}"
        assert not self.campaign.open_work(), f"promise 1: {self.campaign.open_work()} is open and was never planned"
        records = self.disk.records
        for work in todo:
            outcome, record = self.reported[work.work_id], records.get(work.work_id)
            if outcome == "cancelled":
                assert self.it.stopped, f"promise 1: {work.work_id} was cancelled and nobody stopped"
            elif not work.exclusive:
                recorded = record.outcome if record is not None else None
                assert recorded == outcome, f"promise 1: {work.work_id} reported {outcome}, record says {recorded}"
        for attempt, run in self.healed_runs.items():
            # the link broke and came back, and the device survived: that very run is the result
            record = records.get(attempt.work_id)
            if not run.cut_short and not self.it.stopped and classify(run.evidence) not in _REPEATABLE:
                kept = record is not None and record.attempt == attempt and self.starts[attempt.work_id] <= attempt.n
                quarantined = classify(run.evidence) is FailureClass.DEVICE
                assert kept or quarantined, f"promise 8: {attempt} came through a broken link and {record} was kept"


def _class_in(event: Event) -> FailureClass | None:
    """What a run that came to its end came to."""
    if isinstance(event, ev.AttemptDied):
        return event.failure.failure_class
    assert isinstance(event, ev.ResultArrived)
    return classify(event.evidence)


def check_campaign(sim: Simulation) -> None:
    """From what lies on the disk and what the devices have done, after the last invocation."""
    claims = sim.disk.claims()
    replay = sim.disk.replay()
    for device, fake in sim.fakes.items():
        results: dict[str, list[Run]] = {}
        for run in fake.runs:
            if not is_ours(run):
                continue
            work_id, n = run.attempt
            assert sim.home[work_id] == device, f"promise 4: {run.attempt} of {sim.home[work_id]} ran on {device}"
            assert run.attempt in claims, f"promise 7: {run.attempt} ran and the journal knows nothing of it"
            assert n <= replay.highest[work_id], f"promise 7: {run.attempt} ran, the journal ends at {replay.highest}"
            if run.state == "finished" and classify(run.evidence) is None:
                results.setdefault(work_id, []).append(run)
        for work_id, ended in results.items():
            record = sim.disk.records.get(work_id)
            invocations = {sim.began_in[run.attempt] for run in ended}
            assert len(ended) == len(invocations), f"promise 2: {work_id} was measured again: {ended}"
            if record is not None and record.outcome == "ok":
                assert any(run.attempt == record.attempt for run in ended), f"promise 1: {record} of {ended}"
    for work in sim.works:
        record = sim.disk.records.get(work.work_id)
        if record is not None and record.outcome == "ok":
            ran = record.attempt is not None and sim.fakes[work.device].find(record.attempt) is not None
            assert ran, f"promise 11: {work.work_id} has a result, and nothing ran"
