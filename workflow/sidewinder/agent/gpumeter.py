"""A GPU meter: power, energy, heat and use of the GPUs that one run can see. Never added to the host's energy.

``nvidia-smi`` is started once and prints a line per period. Energy is the driver's own counter where every GPU has one
(M-74), else the area under the sampled watts.
"""

import os
import signal
import time

from .gpus import visible
from .nvml import NvmlCounters
from .power import Energy
from .processes import SpawnError, spawn
from .pump import READABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .pump import Pump

_FIELDS = ("index", "uuid", "name", "power.draw", "temperature.gpu", "utilization.gpu")


class _Gpu:
    """What was seen of one GPU."""

    def __init__(self) -> None:
        self.energy = Energy()
        self.hottest = None  # type: float | None
        self.use_total, self.use_count = 0.0, 0


class GpuMeter:
    def __init__(
        self, pid: int, fd: int, pump: "Pump", environment: "Mapping[str, str]", counters: "NvmlCounters | None"
    ) -> None:
        self.pid, self.fd, self.pump = pid, fd, pump
        self.environment = environment
        self.counters = counters
        self.known = []  # type: list[dict[str, Any]]  # in the order of the bus
        self.gpus = {}  # type: dict[str, _Gpu]  # by index
        self.begun = False
        self.rest = b""
        self.first_s = self.last_s = 0.0
        pump.add(fd, READABLE, self._read)

    @classmethod
    def start(
        cls,
        hz: float,
        pump: "Pump",
        environment: "Mapping[str, str]",
        power: bool = True,
        argv: "tuple[str, ...]" = ("nvidia-smi",),
    ) -> "GpuMeter | None":
        """None where there is no ``nvidia-smi``."""
        reader, writer = os.pipe()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        query = "--query-gpu=" + ",".join(_FIELDS)
        options = [query, "--format=csv,noheader,nounits", f"--loop-ms={max(100, int(1000 / hz))}"]
        try:
            pid = spawn(list(argv) + options, (null, writer, null))
        except SpawnError:
            os.close(reader)
            return None
        finally:
            os.close(writer)
            os.close(null)
        os.set_blocking(reader, False)
        return cls(pid, reader, pump, environment, NvmlCounters() if power else None)

    def begin(self, now_s: "float | None" = None) -> None:
        self.begun = True
        self.first_s = time.monotonic() if now_s is None else now_s
        if self.counters is not None:
            self.counters.begin()

    def _read(self) -> None:
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return
        if not data:
            self.pump.remove(self.fd)
            return
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            if self.begun:
                self.take(line.decode("utf-8", "replace"), time.monotonic())

    def take(self, line: str, now_s: float) -> None:
        """One line of one GPU; what is no such line (an error of the driver) is no value."""
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != len(_FIELDS) or not fields[0].isdigit():
            return
        if fields[0] not in self.gpus:
            self.gpus[fields[0]] = _Gpu()
            self.known.append({"index": int(fields[0]), "uuid": fields[1], "name": fields[2]})
        gpu = self.gpus[fields[0]]
        watts, celsius, use = (_number(field) for field in fields[3:])
        if watts is not None:
            gpu.energy.add(now_s, watts)
        if celsius is not None:
            gpu.hottest = celsius if gpu.hottest is None else max(gpu.hottest, celsius)
        if use is not None:
            gpu.use_total += use
            gpu.use_count += 1

    def stop(self, now_s: "float | None" = None) -> None:
        if self.fd < 0:
            return
        self.last_s = time.monotonic() if now_s is None else now_s
        if self.counters is not None:
            self.counters.end()
        for signum in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(self.pid, signum)
            except OSError:
                pass
        self.pump.remove(self.fd)
        os.close(self.fd)
        self.fd = -1

    def summary(self) -> "dict[str, Any]":
        """M-47 names, over the GPUs that the run could see. Which ones those are is said too, by index; where that
        cannot be told, nothing is: the figures of another's GPU would be worse than none."""
        seen = visible(sorted(self.known, key=lambda gpu: int(gpu["index"])), self.environment)
        if not seen:
            return {}
        gpus = [self.gpus[str(gpu["index"])] for gpu in seen]
        out = {"gpu_indices": [gpu["index"] for gpu in seen]}  # type: dict[str, Any]
        out.update(self._energy(seen, gpus))
        temperatures = [gpu.hottest for gpu in gpus if gpu.hottest is not None]
        if temperatures:
            out["gpu_temp_c_max"] = max(temperatures)
        uses = sum(gpu.use_count for gpu in gpus)
        if uses:
            out["gpu_util_pct_mean"] = sum(gpu.use_total for gpu in gpus) / uses
        return out

    def _energy(self, seen: "list[dict[str, Any]]", gpus: "list[_Gpu]") -> "dict[str, Any]":
        """All of them or none: a sum without one of its parts would look like a frugal run."""
        elapsed_s = self.last_s - self.first_s
        if self.counters is not None and elapsed_s > 0:
            counted = [self.counters.joules(gpu["uuid"]) for gpu in seen]
            whole = [joules for joules in counted if joules is not None]
            if len(whole) == len(counted):
                joules = sum(whole)
                return {
                    "gpu_energy_j": joules,
                    "gpu_power_w_mean": joules / elapsed_s,
                    "gpu_energy_source": "nvml_energy_counter",
                }
        if all(gpu.energy.known for gpu in gpus):
            return {
                "gpu_energy_j": sum(gpu.energy.joules for gpu in gpus),
                "gpu_power_w_mean": sum(gpu.energy.mean_w for gpu in gpus),
                "gpu_energy_source": "nvidia_smi_instantaneous",
            }
        return {}


def _number(text: str) -> "float | None":
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]", "ERR!"
