"""Chaos: bad luck of every kind, dealt to the hosts of a lab and to their controller from one seed."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netns.lab_hosts import LabHost, LabHosts
from soak.sweep import Sweep

LEFT_BYTES = 100 << 10  # what a disk that is nearly full has left: too little for the result of a run
# how often, among a hundred faults of a host
FAULTS = {
    "cut": 14,
    "drop": 13,
    "reset": 12,
    "front killed": 11,
    "runner killed": 9,
    "session killed": 10,
    "sshd restarted": 8,
    "sshd away": 5,
    "sshd frozen": 5,
    "reboot": 5,
    "power cut": 4,
    "disk full": 3,
    "dead for long": 1,
}


class Chaos:
    """A thread for each host, one for the controller, one for those who look on. ``gap_s``: between two faults of one
    host, ``kill_s``: between two kills; ``limit``: so many for each host, and one kill; ``scale``: of their length."""

    def __init__(
        self,
        lab: LabHosts,
        sweep: Sweep,
        seed: int,
        *,
        gap_s: tuple[float, float] = (4.0, 22.0),
        kill_s: tuple[float, float] = (15.0, 90.0),
        limit: int | None = None,
        scale: float = 1.0,
    ) -> None:
        self.faults: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._lab, self._sweep, self._seed = lab, sweep, seed
        self._gap_s, self._kill_s, self._limit, self._scale = gap_s, kill_s, limit, scale
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._loop, args=(name, act), name=f"chaos {name}", daemon=True)
            for name, act in (
                *((host.name, self._of_host(host)) for host in lab),
                ("controller", self._kill_controller),
                ("watcher", self._kill_watcher),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_enough(self) -> bool:
        """All that was to happen has happened, and is over. Without a limit: whenever the sweep is."""
        return self._limit is None or not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Ends what is going on, and mends everything."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        for host in self._lab:
            self._mend(host)

    def _loop(self, name: str, act: Callable[[random.Random], None]) -> None:
        rng = random.Random(f"{self._seed} chaos {name}")
        gap_s = self._gap_s if name.startswith("h") else self._kill_s
        limit = self._limit if self._limit is None or name.startswith("h") else 1
        for number in itertools.count():
            if number == limit or self._over.wait(rng.uniform(*gap_s)):
                return
            if name == "controller" and limit is not None:
                self._wait_for_half()
            try:
                act(rng)
            except Exception as error:  # noqa: BLE001 -- a fault that broke must not look like a quiet night
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _wait_for_half(self) -> None:
        """Until half of the sweep is over: a kill at the start of a short one hits nothing."""
        while len(self._sweep.open_points()) > len(self._sweep.points) / 2 and not self._over.wait(0.1):
            pass

    def _note(self, kind: str, host: str, start_s: float, hit: int = 1) -> None:
        told = {"kind": kind, "host": host, "start_s": start_s, "end_s": time.monotonic(), "hit": hit}
        with self._lock:
            self.faults.append(told)

    def _last(self, rng: random.Random, low_s: float, high_s: float) -> None:
        self._over.wait(rng.uniform(low_s, high_s) * self._scale)

    # -- the controller, and those who look on

    def _kill_controller(self, rng: random.Random) -> None:
        start_s = time.monotonic()
        while not (hit := self._sweep.kill()) and not self._over.wait(0.1):
            pass  # between two invocations
        self._note("controller killed", "controller", start_s, int(hit))

    def _kill_watcher(self, rng: random.Random) -> None:
        """Somebody looks at the sweep and is killed; the files that only people need are gone."""
        start_s = time.monotonic()
        sidewinder = Path(sys.executable).with_name("sidewinder")
        watcher = subprocess.Popen(
            [str(sidewinder), "devices"], cwd=self._sweep.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._over.wait(rng.uniform(0.0, 1.5))
        watcher.kill()
        watcher.wait()
        (self._sweep.root / "schedule.json").unlink(missing_ok=True)
        self._note("watcher killed", "controller", start_s)

    # -- a host

    def _of_host(self, host: LabHost) -> Callable[[random.Random], None]:
        def act(rng: random.Random) -> None:
            (kind,) = rng.choices(list(FAULTS), list(FAULTS.values()))
            start_s = time.monotonic()
            try:
                hit = self._strike(kind, host, rng)
            finally:
                self._mend(host)
            self._note(kind, host.name, start_s, hit)

        return act

    def _strike(self, kind: str, host: LabHost, rng: random.Random) -> int:
        match kind:
            case "cut" | "drop":
                getattr(host, kind)()
                # short ones are ridden out, long ones noticed; now and then one outlives the lease
                if rng.random() < 0.05:
                    self._last(rng, 62, 75)
                else:
                    self._last(rng, 0.2, rng.choice((2.0, 25.0)))
            case "reset":
                hit = host.reset()
                self._last(rng, 0.5, 3)
                return hit
            case "front killed":
                return host.kill_front()
            case "runner killed":
                return host.kill_runner()
            case "session killed":
                return host.kill_sessions()
            case "sshd restarted":
                host.restart_sshd()
            case "sshd away":
                host.kill_sshd()
                self._last(rng, 2, 12)
            case "sshd frozen":
                host.freeze_sshd()
                self._last(rng, 2, 20)
                host.thaw_sshd()
            case "reboot":
                host.reboot(rng.uniform(0.5, 5) * self._scale)
            case "power cut":
                host.power_off()
                self._last(rng, 2, 20)
            case "dead for long":
                host.power_off()
                self._last(rng, 60, 80)
            case "disk full":
                self._fill(host)
                self._last(rng, 5, 20)
        return 1

    def _filler(self, host: LabHost) -> Path:
        return host.folder / "filler"

    def _fill(self, host: LabHost) -> None:
        with open(self._filler(host), "wb") as file:
            free = os.statvfs(host.folder)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - LEFT_BYTES))

    def _mend(self, host: LabHost) -> None:
        self._filler(host).unlink(missing_ok=True)
        if not host.is_on:
            host.power_on()
        host.heal()
        if not host.sshd():
            host.start_sshd()
