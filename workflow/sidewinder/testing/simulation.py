"""A simulation: one seeded campaign from the first invocation to the last, with bad luck, held against the promises.

Devices, groups, policies, points and faults are drawn from the seed; so are the moments at which the controller is
killed, stopped by a person, or finds its disk full. After a kill the campaign is built again from what the journal
holds. Invariants are checked after every event, the promises of docs/design.md §2 by a ``Witness``, as things happen
and at the end.
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from sidewinder.core.campaign import Campaign
from sidewinder.core.events import Event, Work
from sidewinder.errors import InternalError
from sidewinder.model import AttemptId, Device, Policy, RetryPolicy
from sidewinder.testing.clock import FakeClock
from sidewinder.testing.device import FakeDevice, Faults
from sidewinder.testing.disk import FakeDisk
from sidewinder.testing.invocation import Invocation
from sidewinder.testing.witness import check_campaign

GRACE_S = 5.0  # between the end of a lease and that of its run, at most
REMEMBERED = 40
CONTROLLER = "controller"


class Violation(AssertionError):
    """A promise was broken. The message names it and the seed."""


class Simulation:
    def __init__(self, seed: int, *, make: Callable[..., Campaign] = Campaign, jumps: bool = True) -> None:
        """``jumps``: whether somebody sets the wall clock meanwhile."""
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.jumps = random.Random(f"{seed} jumps") if jumps else None
        self.make = make
        self.clock = FakeClock()
        self.disk = FakeDisk()
        self.policy = self._draw_policy()
        self.lease_s = rng.choice([20.0, 60.0])
        self.outlives_s = self.lease_s + GRACE_S
        self.bad_luck = rng.choice([0.0, 0.02, 0.1, 0.3])
        self.devices = self._draw_devices()
        self.policies = {d.id: self._draw_policy() if rng.random() < 0.1 else self.policy for d in self.devices}
        self.fakes = {d.id: self._make_fake(d) for d in self.devices}
        self.works = self._draw_works()
        self.home = {work.work_id: work.device for work in self.works}
        self.invocation = 0
        self.events = 0
        self.injected: Counter[str] = Counter()
        self.began_in: dict[AttemptId, int] = {}  # the invocation in which each execution began
        self.recent: deque[tuple[float, Event, list[Any]]] = deque(maxlen=REMEMBERED)  # for whoever replays a seed
        self._digest: Any = None

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _draw_policy(self) -> Policy:
        rng = self.rng
        retry = RetryPolicy(
            max_attempts=rng.randint(1, 4),
            backoff_s=rng.choice([0.0, 0.5, 5.0]),
            backoff_factor=rng.choice([1.0, 2.0, 10.0]),
            max_backoff_s=rng.choice([5.0, 120.0]),
            jitter=rng.choice([0.0, 0.25, 1.0]),
        )
        return Policy(retry=retry, busy_wait_s=rng.choice([0.0, 20.0, 120.0]))

    def _draw_devices(self) -> list[Device]:
        rng = self.rng
        devices = []
        for i in range(rng.randint(1, 5)):
            group = rng.choice([None, None, "board", "board", "host"])
            devices.append(
                Device(
                    f"d{i}",
                    "local",
                    max_concurrency=rng.choice([1, 1, 1, 2, 3]),
                    max_transport_failures=rng.choice([1, 3, 3, 5]),
                    recovery_after_s=rng.choice([20.0, 180.0]),
                    give_up_after_s=rng.choice([0.0, 60.0, 360.0, 360.0, None]),
                    resource_group=group,
                    group_max_concurrency=rng.choice([None, 1, 1, 2, 3]) if group else None,
                )
            )
        names = [device.id for device in devices]
        drawn = [
            dataclasses.replace(device, failover_to=self._draw_stand_ins(device.id, names))
            if len(names) > 1 and rng.random() < 0.3
            else device
            for device in devices
        ]
        if rng.random() < 0.3:  # ordinary jobs take turns with what is measured on this machine
            drawn[0] = here = dataclasses.replace(drawn[0], resource_group=drawn[0].resource_group or "controller")
            drawn.append(Device(CONTROLLER, "local", resource_group=here.resource_group))
        return drawn

    def _draw_stand_ins(self, name: str, names: list[str]) -> tuple[str, ...]:
        """One or several, in any order; circles too."""
        others = [other for other in names if other != name]
        return tuple(self.rng.sample(others, self.rng.randint(1, min(2, len(others)))))

    def _make_fake(self, device: Device) -> FakeDevice:
        rng = self.rng
        fake = FakeDevice(device.id, random.Random(rng.random()), self._draw_faults(), lease_s=self.lease_s)
        fake.run_s = rng.choice([1.0, 10.0, 10.0, 100.0])
        if self.bad_luck and rng.random() < 0.05:
            fake.is_dead = True  # and was before anybody looked
        return fake

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
            deaths_per_s=some(0.003),
            stale=some(0.2),
            refused=some(0.3),
            quarantine=some(0.05),
            unfit=some(0.02),
            unasked=some(0.05),
            foreign=some(0.3),
            leftover=some(0.5),
            bad_result=some(2.0),
            ends_per_s=some(0.02),
        )

    def _draw_works(self) -> list[Work]:
        rng = self.rng
        works = []
        for device in self.devices:
            count = rng.randint(0, 7) if device.id != CONTROLLER else 0
            positions = list(range(count))
            if rng.random() < 0.7:
                rng.shuffle(positions)  # interleaved; else as the plan has it
            priorities = rng.choice([[0], [0, 0, 0, 1], [-1, 0, 5]])
            for i in range(count):
                works.append(
                    Work(f"{device.id}-p{i}", device.id, priority=rng.choice(priorities), position=positions[i])
                )
        for i in range(2 if self.devices[-1].id == CONTROLLER else 0):
            works.append(Work(f"job{i}", CONTROLLER, exclusive=True, position=rng.randint(0, 5)))
        rng.shuffle(works)
        return works

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self) -> Simulation:
        """All invocations, the last one undisturbed. Raises ``Violation``."""
        try:
            for _ in range(self.rng.choice([0, 0, 1, 1, 2, 3])):
                self._invoke(disturbed=True)
            self._invoke(disturbed=False)
            check_campaign(self)
        except (AssertionError, InternalError) as error:
            raise Violation(f"seed {self.seed}, invocation {self.invocation}, event {self.events}: {error}") from error
        return self

    def digest(self) -> str:
        """Run it, and say in 64 digits everything that happened: equal for two runs of a seed."""
        self._digest = hashlib.sha256()
        self.run()
        self._digest.update(repr((sorted(self.disk.records.items()), bytes(self.disk.lines))).encode())
        return str(self._digest.hexdigest())

    def remember(self, event: Event, made: list[Any]) -> None:
        now_s = self.clock.monotonic_s
        self.recent.append((now_s, event, made))
        if self._digest is not None:
            self._digest.update(repr((now_s, event, made)).encode())

    def _invoke(self, *, disturbed: bool) -> None:
        self.invocation += 1
        Invocation(self, disturbed).run()
        self.clock.advance(self.rng.choice([0.0, 1.0, 30.0, 1e4]))  # until the same command is given again
