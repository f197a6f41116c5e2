"""A session: one lab in the engine, with its run folder, plan, journal, lock and device links."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import sidewinder
from sidewinder import ids
from sidewinder.core import order
from sidewinder.core.events import Work
from sidewinder.errors import ConfigError
from sidewinder.files import journal, ledger, records
from sidewinder.files import plan as plan_file
from sidewinder.files.done import Done
from sidewinder.files.ledger import Ledger
from sidewinder.files.lock import ControllerLock
from sidewinder.labels import Labeller
from sidewinder.machines import turn_groups
from sidewinder.model import AttemptId, Device, Json, Plan, Point

from .devices import DeviceLink, OpenClient, agent_opener
from .health import Health


class Session:
    """Devices and points of one lab under names that are unique in the engine (``0:pi5``): two labs may both have a
    ``pi5``, and the core sees opaque names only."""

    def __init__(
        self,
        index: int,
        root: str,
        plan: Plan,
        *,
        forced: frozenset[str] = frozenset(),
        open_client: OpenClient | None = None,
        client_id: str | None = None,
        versions: Mapping[str, str] | None = None,
        shared_lock: bool = False,
        announce: Callable[[str], None] | None = None,
    ) -> None:
        """Takes the run folder's lock (``LockHeld``, ``PublishError``) and reads the journal. ``announce``: what a
        person is told before the heartbeat of a controller on another host is watched; None: it is not."""
        self.index, self.root, self.forced = index, root, forced
        self.lock = ControllerLock(root).acquire(shared=shared_lock, announce=announce)
        try:
            # one uuid a run folder, by which devices know our runs: a fresh folder never adopts an old one's result
            self.plan = plan if plan.campaign else plan_file.publish(root, plan)
            if not shared_lock:
                journal.compact(root)
            self.replay = journal.replay(root)
        except BaseException:
            self.lock.release()
            raise
        self.journal = journal.Journal(root)
        self.health = Health(self.replay)
        self.told_before = ledger.told_of(
            root, self.replay.since
        )  # what earlier invocations wrote of what is in flight
        self.ledger = Ledger(root)
        self.versions = {"sidewinder": sidewinder.__version__, "python": platform.python_version(), **(versions or {})}
        # Records of points that ended in the engine, to be published together: there is no run that could be lost.
        self.pending: dict[str, tuple[str, str, dict[str, Json]]] = {}  # records of inline points, by run id
        self._done: Done | None = None
        self._moved: dict[str, Point] = {}  # copies of points that other devices took over, by their own run ids
        self._labeller: Labeller | None = None
        self._positions: Mapping[str, int] | None = None
        self._copy_positions: dict[str, int] = {}
        # The newest front of a client ends its older ones: a controller that comes back ends its dead one's, two labs
        # in one engine leave each other's alone.
        client = client_id or f"sidewinder-{self.plan.campaign}"
        opener = open_client or agent_opener(self.plan.campaign, client)
        boots: dict[str, dict[tuple[str, int], str]] = {}
        for run_id, flight in self.replay.in_flight.items():
            if flight.boot is not None:
                boots.setdefault(flight.device, {})[run_id, flight.n] = flight.boot
        devices = self.plan.lab.devices
        self.links = {name: DeviceLink(devices[name], opener, boots.get(name, {})) for name in devices}
        self._is_open = True

    # -- names

    def device_key(self, device: str) -> str:
        return sys.intern(f"{self.index}:{device}")  # one text for all points of a device

    def work_id(self, run_id: str) -> str:
        return f"{self.index}:{run_id}"

    # -- what the core is told

    def core_devices(self) -> list[Device]:
        """The lab's devices as the core sees them: own names, and one group for all that is this machine."""
        devices = self.plan.lab.devices.values()
        groups = turn_groups(devices)
        return [self._core_device(device, groups[device.id]) for device in devices]

    def _core_device(self, device: Device, group: str) -> Device:
        limit = device.group_max_concurrency
        if device.resource_group is None:
            # two labs of one workflow may name the same machine: it is one machine all the same
            limit = limit or device.max_concurrency
        return replace(
            device,
            id=self.device_key(device.id),
            resource_group=group,
            group_max_concurrency=limit,
            failover_to=tuple(self.device_key(target) for target in device.failover_to),
        )

    def work(self, run_id: str) -> Work:
        point = self.point(run_id)
        flight = self.replay.in_flight.get(run_id)
        return Work(
            self.work_id(run_id),
            self.device_key(point.device),
            priority=point.priority,
            position=self.position(run_id),
            last_attempt=flight.n if flight else self.replay.highest.get(run_id, 0),
            in_flight=flight is not None,
        )

    def in_flight(self, device: str) -> tuple[AttemptId, ...]:
        """What may run on this device right now, whether it is asked for in this invocation or not."""
        flights = self.replay.in_flight.items()
        return tuple(AttemptId(self.work_id(run_id), f.n) for run_id, f in flights if f.device == device)

    # -- what is known of a point

    def point(self, run_id: str) -> Point:
        point = self.plan.points.get(run_id) or self._moved.get(run_id)
        if point is None:
            raise ConfigError("not in the plan of this run folder", key=run_id, file=self.root)
        return point

    def moved_copy(self, run_id: str, to_device: str) -> Point:
        """The same point for another device, under a run id of its own: it never equals that device's own points.

        Raises ``ConfigError`` where that device does not have the model."""
        point, lab = self.plan.points[run_id], self.plan.lab
        model = lab.models.get(point.model) if point.model else None
        path = point.model_path if model is None else model.path_on(to_device)
        if model is not None and path is None:
            raise ConfigError(f"has no path for device {to_device}", key=f"models.{model.id}")
        copy = replace(
            point,
            device=to_device,
            model_path=path,
            failover_from=point.device,
            tags=(*point.tags, f"failover-from:{point.device}"),
        )
        copy = ids.with_run_id(copy, lab.devices[to_device], model)
        if copy.run_id not in self._moved:
            # behind the device's own points, whose order is the plan's
            points = (*self.plan.points.values(), *self._moved.values())
            self._copy_positions[copy.run_id] = sum(other.device == to_device for other in points)
            self._moved[copy.run_id] = copy
        return copy

    def is_done(self, run_id: str) -> bool:
        if self._done is None:
            self._done = Done(self.root, self.plan)
        return self._done.is_done(run_id)

    def totals(self) -> dict[str, dict[str, int]]:
        """Per device: planned, done, open, of the points selected."""
        totals: dict[str, dict[str, int]] = {}
        for run_id, point in self.plan.points.items():
            if self.plan.is_selected(run_id):
                count = totals.setdefault(point.device, {"planned": 0, "done": 0, "open": 0})
                count["planned"] += 1
                count["done" if self.is_done(run_id) else "open"] += 1
        return totals

    def position(self, run_id: str) -> int:
        if run_id in self._copy_positions:
            return self._copy_positions[run_id]
        if self._positions is None:
            by_device: dict[str, list[str]] = {}
            arms = {}
            for point in self.plan.points.values():
                by_device.setdefault(point.device, []).append(point.run_id)
                arms[point.run_id] = order.arm(point)
            policy = self.plan.lab.policy
            self._positions = order.positions(by_device, policy.order_by, policy.order_seed, arms)
        return self._positions[run_id]

    def order_of(self, run_id: str, predecessor: str | None) -> dict[str, Json]:
        policy = self.plan.lab.policy
        return {
            "seed": policy.order_seed,
            "by": policy.order_by,
            "position": self.position(run_id),
            "predecessor": predecessor,
        }

    def identity_of(self, point: Point) -> dict[str, Json]:
        lab = self.plan.lab
        model = lab.models.get(point.model) if point.model else None
        return ids.identity(point, lab.devices[point.device], model)

    def publish_pending(self, run_ids: Iterable[str]) -> dict[str, records.Published]:
        """The records of these points and of no other: one that is not told of yet must not be lost with them where
        the disk refuses. Raises ``PublishError``."""
        batch = [self.pending.pop(run_id) for run_id in run_ids if run_id in self.pending]
        return {told.run_id: told for told in records.publish_many(self.root, batch)}

    def label(self, point: Point) -> str:
        if self._labeller is None:
            self._labeller = Labeller.of(self.plan)
        return self._labeller.label(point)

    async def close(self) -> None:
        """Bounded: what a link leaves running on its device ends there by its lease."""
        await asyncio.gather(*(link.close() for link in self.links.values()), return_exceptions=True)
        self.release()

    def release(self) -> None:
        """Give the run folder back. Harmless when that is done already."""
        if self._is_open:
            self._is_open = False
            self.journal.close()
            self.ledger.close()
            self.lock.release()
