"""What tests of the Snakemake side share: a lab folder whose points fail on demand, and a way to start Snakemake."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[2]
OURS = (
    *("--executor", "sidewinder", "--scheduler", "sidewinder", "-j", "unlimited"),
    *("--max-jobs-per-timespan", "1000000/1s", "--nolock"),
)
# Snakemake's own executor; with threads a `run:` needs no Snakemake process of its own (3 CPU s each)
REFERENCE = ("--cores", "1", "--nolock", "--force-use-threads")
COMMON = ("--keep-going", "--rerun-incomplete", "--latency-wait", "0", "--nocolor")

# One measurement of a test: fails for the points named in FAIL (`pi5-1`), waits while HOLD is there, counts its starts.
MEASURE = """\
import os, sys, time
lab, device, threads = sys.argv[1:]
name = device + "-" + threads
with open(os.path.join(lab, "started"), "a") as f:
    f.write(name + "\\n")
while os.path.exists(os.path.join(lab, "HOLD-" + name)) or os.path.exists(os.path.join(lab, "HOLD")):
    time.sleep(0.02)
try:
    bad = open(os.path.join(lab, "FAIL")).read().split()
except OSError:
    bad = []
if any(one in name for one in bad):
    sys.exit("no luck with " + name)
print('{"value": %s}' % threads)
"""


@dataclass
class Run:
    """One start of Snakemake that has ended."""

    rc: int
    text: str
    cpu_s: float
    rss_bytes: int


@dataclass
class Started:
    pid: int
    out: Path
    ended: threading.Event = field(default_factory=threading.Event)
    result: dict[str, Any] = field(default_factory=dict)

    def wait(self, timeout_s: float = 120.0) -> Run:
        if not self.ended.wait(timeout_s):
            os.killpg(self.pid, signal.SIGKILL)
            raise AssertionError(f"Snakemake did not end in {timeout_s} s:\n{self.text()}")
        return Run(self.result["rc"], self.text(), self.result["cpu_s"], self.result["rss_bytes"])

    def kill(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def text(self) -> str:
        return self.out.read_text(errors="replace")


class Snakemake:
    """Starts Snakemake in forks of one process that has imported it."""

    def __init__(self) -> None:
        environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "200"}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("snakemake_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        self._lock = threading.Lock()
        self._pids: list[int] = []
        self._new = threading.Semaphore(0)
        self._running: dict[int, Started] = {}
        self._early: dict[int, dict[str, Any]] = {}
        self._count = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, args: Iterable[str], cwd: Path, env: Mapping[str, str] | None = None) -> Started:
        with self._lock:
            self._count += 1
            out = cwd / f".out-{self._count}"
            request = {"args": list(args), "cwd": str(cwd), "env": dict(env or {}), "out": str(out)}
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            assert self._new.acquire(timeout=60)
            started = Started(self._pids.pop(0), out)
            out.touch()
            self._running[started.pid] = started
            if started.pid in self._early:
                self._end(self._early.pop(started.pid))
        return started

    def _end(self, message: dict[str, Any]) -> None:
        started = self._running.pop(message["pid"])
        started.result = message
        started.ended.set()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "rc" not in message:
                self._pids.append(message["pid"])
                self._new.release()
            elif message["pid"] in self._running:
                self._end(message)
            else:
                self._early[message["pid"]] = message

    def close(self) -> None:
        for started in list(self._running.values()):
            os.killpg(started.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


class LabFolder:
    """A folder with this repository's rules and a lab of devices that are all this machine."""

    def __init__(self, snakemake: Snakemake, folder: Path, config: Mapping[str, Any] | None = None) -> None:
        self.snakemake, self.folder = snakemake, folder
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPO / "Snakefile", folder)
        shutil.copytree(REPO / "rules", folder / "rules", dirs_exist_ok=True)
        (folder / "measure.py").write_text(MEASURE)
        (folder / "config").mkdir(exist_ok=True)
        self.configure(config or self.lab())

    def lab(
        self, devices: Sequence[str] = ("pi5", "xeon"), threads: Sequence[int] = (1, 2), **more: Any
    ) -> dict[str, Any]:
        return {
            "experiment": "demo",
            "devices": {device: {"kind": "local", "resource_group": "here"} for device in devices},
            "matrix": [
                {
                    "backend": "command",
                    "devices": list(devices),
                    "command": [
                        sys.executable,
                        "-S",
                        "-E",
                        str(self.folder / "measure.py"),
                        str(self.folder),
                        "{device}",
                        "{threads}",
                    ],
                    "threads": list(threads),
                    "metrics": "json",
                }
            ],
            **more,
        }

    def configure(self, config: Mapping[str, Any]) -> None:
        (self.folder / "config" / "lab.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False))

    def run(self, *args: str, executor: Sequence[str] = OURS, env: Mapping[str, str] | None = None) -> Run:
        return self.start(*args, executor=executor, env=env).wait()

    def start(self, *args: str, executor: Sequence[str] = OURS, env: Mapping[str, str] | None = None) -> Started:
        # where agents keep their slots: else every test of this machine would wait for every other's
        environ = {"XDG_CACHE_HOME": str(self.folder / ".cache"), **(env or {})}
        return self.snakemake.start((*executor, *COMMON, *args), self.folder, environ)

    def fail(self, *names: str) -> None:
        """Points (`pi5-1`) that fail from now on."""
        (self.folder / "FAIL").write_text(" ".join(names))

    @property
    def starts(self) -> list[str]:
        """Every start of a measurement so far, in order."""
        path = self.folder / "started"
        return path.read_text().split() if path.exists() else []

    def record(self, name: str, root: str = "runs/demo") -> Path:
        device, _, threads = name.rpartition("-")
        (found,) = (self.folder / root / "records" / device).glob(f"*-t{threads}-*.json")
        return found


def open_points(text: str) -> list[str]:
    """The points that a dry run lists, as `pi5-1`, each with the folder before `records` where it is not runs/demo."""
    found = []
    for prefix, device, threads in re.findall(
        r"^    output: (\S*?)records/([^/\s]+)/\S*-t(\d+)-[0-9a-f]{12}\.json", text, re.M
    ):
        found.append(f"{prefix.removeprefix('runs/demo/')}{device}-{threads}")
    return sorted(found)


def rule_runs(text: str, rule: str) -> int:
    return len(re.findall(rf"^(?:local)?rule {rule}:$", text, re.M))
