"""Chaos: bad luck, dealt from one seed to the devices of a sweep, to its controller and to those who look on."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from soak.sweep import Sweep

CONTROLLER = "controller"
Act = Callable[[random.Random], None]


class Chaos:
    """A thread for each of ``acts`` (what befalls one device or place), one for the controller, one for those who look
    on. ``gap_s``: between two faults of one place, or one for each place; ``kill_s``: between two kills; ``limit``: so
    many for each place, and one kill; ``scale``: of their length."""

    def __init__(
        self,
        sweep: Sweep,
        seed: int,
        acts: Mapping[str, Act],
        *,
        gap_s: tuple[float, float] | Mapping[str, tuple[float, float]] = (4.0, 22.0),
        kill_s: tuple[float, float] = (15.0, 90.0),
        limit: int | None = None,
        scale: float = 1.0,
    ) -> None:
        self.faults: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._sweep, self._seed = sweep, seed
        self._gap_s, self._kill_s, self._limit, self._scale = gap_s, kill_s, limit, scale
        self._places = tuple(acts)
        self._over = threading.Event()
        self._lock = threading.Lock()
        everything = {**acts, CONTROLLER: self._kill_controller, "watcher": self._kill_watcher}
        self._threads = [
            threading.Thread(target=self._loop, args=(name, act), name=f"chaos {name}", daemon=True)
            for name, act in everything.items()
        ]

    def mend(self) -> None:
        """Everything is as it was before the bad luck."""
        raise NotImplementedError

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def is_enough(self) -> bool:
        """All that was to happen has happened, and is over. Without a limit: whenever the sweep is."""
        return self._limit is None or not any(thread.is_alive() for thread in self._threads)

    def stop(self) -> None:
        """Ends what is going on, and mends everything. Once."""
        if self._over.is_set():
            return
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.mend()

    def _loop(self, name: str, act: Act) -> None:
        rng = random.Random(f"{self._seed} chaos {name}")
        limit = self._limit if self._limit is None or name in self._places else 1
        gap_s = self._kill_s if name not in self._places else self._gap_of(name)
        for number in itertools.count():
            if number == limit or self._over.wait(rng.uniform(*gap_s)):
                return
            if name == CONTROLLER and limit is not None:
                self._wait_for_half()
            try:
                act(rng)
            except Exception as error:  # noqa: BLE001 -- a fault that broke must not look like a quiet night
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _gap_of(self, place: str) -> tuple[float, float]:
        return self._gap_s[place] if isinstance(self._gap_s, Mapping) else self._gap_s

    def _wait_for_half(self) -> None:
        """Until half of the sweep is over: a kill at the start of a short one hits nothing."""
        while len(self._sweep.open_points()) > len(self._sweep.points) / 2 and not self._over.wait(0.1):
            pass

    def _note(self, kind: str, host: str, start_s: float, hit: int = 1, **more: Any) -> None:
        told = {"kind": kind, "host": host, "start_s": start_s, "end_s": time.monotonic(), "hit": hit, **more}
        with self._lock:
            self.faults.append(told)

    def _last(self, rng: random.Random, low_s: float, high_s: float) -> None:
        self._over.wait(rng.uniform(low_s, high_s) * self._scale)

    # -- the controller, and those who look on

    def _kill_controller(self, rng: random.Random) -> None:
        start_s = time.monotonic()
        while not (hit := self._sweep.kill()) and not self._over.wait(0.1):
            pass  # between two invocations
        self._note("controller killed", CONTROLLER, start_s, int(hit))

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
        self._note("watcher killed", CONTROLLER, start_s)
