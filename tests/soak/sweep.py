"""A sweep of the soak: a lab folder with points of every kind, and a real Snakemake that is killed and rerun.

What its devices are is said by who makes it; nothing here knows a kind of device.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sidewinder import config
from sidewinder.files import records
from sidewinder.model import Plan

REPO = Path(__file__).resolve().parents[2]
EXPERIMENT = "soak"
# of a hundred points
KINDS = {"ok": 80, "noise": 3, "leaver": 5, "exit": 5, "kill": 4, "garbage": 3}
FAILS = {"exit": "measurement", "kill": "measurement", "garbage": "parse"}
ACCEPTED = 0.9  # so many of those that fail are accepted when they have; each invocation measures the others again
RECOVERY_S = 8.0
GIVE_UP_S = 40.0
COLUMNS = ("device", "name", "kind", "seconds", "value")
WORK = Path(__file__).with_name("work.py")
WITNESS = "witness"
LONG_S = (15.0, 30.0)


class Sweep:
    def __init__(
        self,
        folder: Path,
        devices: Mapping[str, Mapping[str, Any]],
        home: str,
        *,
        seed: int,
        points: int,
        longest_s: float,
        shares: Mapping[str, int] | None = None,
        long_share: float = 0.0,
    ) -> None:
        """``devices``: the section of the lab; ``home``: the folder on each device that holds ``work.py`` and takes its
        traces; ``shares``: how many points a device has for each of another's (1);
        ``long_share``: so many of the points last ``LONG_S``, as long as a fault does."""
        self.folder = folder
        self.root = folder / "runs" / EXPERIMENT
        self.invocations: list[dict[str, Any]] = []
        self._switch = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        rng = random.Random(f"{seed} points")
        names = [name for name in devices for _ in range((shares or {}).get(name, 1))]
        self.points: dict[str, dict[str, Any]] = {}
        for number in range(1, points + 1):
            (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
            seconds = round(0.2 + (longest_s - 0.2) * rng.random() ** 2, 2)  # most of them are short
            if long_share and rng.random() < long_share:
                seconds = round(rng.uniform(*LONG_S), 2)
            point = {"device": names[number % len(names)], "kind": kind, "seconds": seconds, "value": number}
            point["acceptable"] = kind in FAILS and rng.random() < ACCEPTED
            self.points[f"p{number:04}"] = point
        self._write(devices, home)

    def _write(self, devices: Mapping[str, Mapping[str, Any]], home: str) -> None:
        folder = self.folder
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / "Snakefile", folder)
        for name in ("rules", "profiles"):
            shutil.copytree(REPO / name, folder / name)
        (folder / "me").mkdir()
        with open(folder / "points.csv", "w", newline="") as table:
            writer = csv.DictWriter(table, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows({"name": name, **point} for name, point in self.points.items())
        command = ["python3", "-S", f"{home}/{WORK.name}", f"{home}/{WITNESS}"]
        command += [f"{{{key}}}" for key in ("name", "kind", "seconds", "value")]
        self._config = {
            "experiment": EXPERIMENT,
            "devices": dict(devices),
            "policy": {"retry": {"max_attempts": 3, "backoff_s": 1, "max_backoff_s": 8}},
            "matrix": [{"from": "points.csv", "backend": "command", "command": command, "metrics": "json"}],
        }
        self._publish()
        plan = self.plan()
        for run_id, planned in plan.points.items():
            self.points[planned.parameters["name"]]["run_id"] = run_id
        self._config["accept"] = {}

    def accept(self) -> None:
        """As a person does between two invocations, with some of what has failed: it is measured no more."""
        for point in self.points.values():
            if point["acceptable"] and "accepted_s" not in point and self._is_over(point):
                self._config["accept"][point["run_id"]] = "fails on purpose"
                point["accepted_s"] = time.monotonic()
        self._publish()

    def _publish(self) -> None:
        (self.folder / "config").mkdir(exist_ok=True)
        (self.folder / "config/lab.yaml").write_text(json.dumps(self._config, indent=1))  # JSON is YAML

    def plan(self) -> Plan:
        here = os.getcwd()
        os.chdir(self.folder)  # where its table is looked for
        try:
            return config.load_files(["config/lab.yaml"], {})
        finally:
            os.chdir(here)

    # -- the controller

    def environ(self) -> dict[str, str]:
        """Of a person who has nothing but this folder."""
        environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.folder / "me"),
            "XDG_CACHE_HOME": str(self.folder / "me/.cache"),
        }
        for name in ("SSH_AUTH_SOCK", "KUBECONFIG"):
            environ.pop(name, None)
        return environ

    def invoke(self) -> int:
        """The same command once more; its exit code, or minus the signal that ended it."""
        told: dict[str, Any] = {"start_s": time.monotonic()}
        log = self.folder / f"controller-{len(self.invocations):03}.log"
        with open(log, "wb") as out:
            process = subprocess.Popen(
                ["snakemake", "--profile", "profiles/lab", "--nocolor"],
                cwd=self.folder,
                env=self.environ(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with self._switch:
                self._process = process
            try:
                code = process.wait()
            finally:
                with self._switch:
                    self._process = None
                process.kill()  # where a person gave the soak up: it goes with it
        told.update(end_s=time.monotonic(), code=code)
        self.invocations.append(told)
        return code

    def kill(self) -> bool:
        """``kill -9``; False: there was no controller just then."""
        with self._switch:
            if self._process is None:
                return False
            self._process.send_signal(signal.SIGKILL)
            return True

    # -- what lies on disk

    def open_points(self) -> list[str]:
        """Those that are neither measured nor failed as they must."""
        return [name for name, point in self.points.items() if not self._is_over(point)]

    def _is_over(self, point: dict[str, Any]) -> bool:
        path = self.root / "records" / point["device"] / f"{point['run_id']}.json"
        status = records.status_of(str(path), point["run_id"])  # what was never measured is a hole here, not a failure
        return status == ("failed" if point["kind"] in FAILS else "ok")


def write_lines(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
