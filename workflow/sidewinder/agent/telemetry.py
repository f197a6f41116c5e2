"""A sampler: temperature, clocks, power and CPU use of the device over one run, read only when a task asks for it.

No process is started per sample; what a device does not have is absent from the summary, never zero. Values are folded
into sums as they come, so that a long run needs no more memory than a short one.
"""

import glob
import os
import time

from .gpumeter import GpuMeter
from .power import PmicMeter, RaplMeter, VideoCore
from .sysfiles import read_number, read_text, rooted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .pump import Pump

MAX_HZ = 10.0
_THROTTLE_BITS = ((1, "under_voltage"), (2, "frequency_capped"), (4, "throttled"), (8, "soft_temperature_limit"))


class Series:
    """Minimum, mean and maximum of the values seen."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.least = 0.0
        self.most = 0.0
        self.first = None  # type: float | None

    def add(self, value: "float | None") -> None:
        if value is None:
            return
        if self.first is None:
            self.first = self.least = self.most = value
        self.count += 1
        self.total += value
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    @property
    def mean(self) -> float:
        return self.total / self.count


class OpenFiles:
    """Numbers in files that stay open between samples (a kept descriptor costs a third of a new one)."""

    def __init__(self, paths: "list[str]") -> None:
        self.fds = []  # type: list[int]
        for path in paths:
            if read_number(path) is None:
                continue  # there, but does not tell (some thermal zones)
            self.fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read(self) -> "list[int]":
        values = []
        for fd in self.fds:
            try:
                values.append(int(os.pread(fd, 64, 0)))
            except (OSError, ValueError):
                continue
        return values

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []


def thermal_paths(root: str) -> "list[str]":
    return sorted(glob.glob(rooted(root, "/sys/class/thermal") + "/thermal_zone*/temp"))


def cpufreq_paths(root: str) -> "list[str]":
    cpu = rooted(root, "/sys/devices/system/cpu")
    return sorted(glob.glob(cpu + "/cpufreq/policy*/scaling_cur_freq")) or sorted(
        glob.glob(cpu + "/cpu[0-9]*/cpufreq/scaling_cur_freq")
    )


def _celsius(value: int) -> float:
    return value / 1000.0 if abs(value) > 200 else float(value)


def cpuinfo_khz(root: str) -> "list[float]":
    found = []
    for line in (read_text(rooted(root, "/proc/cpuinfo")) or "").splitlines():
        if line.startswith("cpu MHz"):
            try:
                found.append(float(line.split(":")[1]) * 1000.0)
            except (IndexError, ValueError):
                continue
    return found


def read_cpu_ticks(root: str) -> "dict[str, tuple[int, int]]":
    """(busy, total) ticks of each line of /proc/stat; waiting for a disk is not busy, a stolen tick is."""
    found = {}
    for line in (read_text(rooted(root, "/proc/stat")) or "").splitlines():
        words = line.split()
        if not words or not words[0].startswith("cpu"):
            break
        numbers = [int(word) for word in words[1:9]]
        if len(numbers) >= 5:
            total = sum(numbers)
            found[words[0]] = (total - numbers[3] - numbers[4], total)
    return found


def throttle_bits(root: str, core: VideoCore) -> "int | None":
    """What holds now (the low four bits); what has held since boot says nothing about this run."""
    text = read_text(rooted(root, "/sys/devices/platform/soc/soc:firmware/get_throttled"))
    if text is None:
        answer = core.command("get_throttled")
        text = answer.partition("=")[2] if answer else None
    try:
        return int(text.strip(), 16) & 0xF if text else None
    except ValueError:
        return None


class Sampler:
    """``environment`` is the run's: it may hide GPUs from it."""

    def __init__(
        self,
        root: str,
        hz: float,
        power: bool,
        pump: "Pump",
        core: "VideoCore | None" = None,
        environment: "Mapping[str, str] | None" = None,
    ) -> None:
        self.root = root
        self.hz = min(hz, MAX_HZ)
        self.power = power
        self.pump = pump
        self.core = VideoCore(rooted(root, "/dev/vcio")) if core is None else core
        self.begun = False
        self.next_s = 0.0
        self.samples = 0
        self.temperature, self.frequency = Series(), Series()
        self.zones = OpenFiles(thermal_paths(root))
        self.clocks = OpenFiles(cpufreq_paths(root))
        self.rapl = RaplMeter(root) if power else None
        self.pmic = PmicMeter(self.core) if power else None
        self.nvidia = None  # type: GpuMeter | None
        self.environment = os.environ if environment is None else environment
        self.cpu_before = {}  # type: dict[str, tuple[int, int]]
        self.cpu_after = {}  # type: dict[str, tuple[int, int]]
        self.throttle_before = None  # type: int | None
        self.throttle_after = None  # type: int | None

    def start(self) -> "set[int]":
        """Before the run: what must be running by then. Returns the pids of processes that are ours."""
        if self.root == "/":
            self.nvidia = GpuMeter.start(self.hz, self.pump, self.environment, self.power)
        self.throttle_before = throttle_bits(self.root, self.core)
        return {self.nvidia.pid} if self.nvidia is not None else set()

    def begin(self, now_s: "float | None" = None) -> None:
        self.cpu_before = read_cpu_ticks(self.root)
        self.begun = True
        if self.nvidia is not None:
            self.nvidia.begin()
        self._sample(time.monotonic() if now_s is None else now_s)

    def due_in_s(self, now_s: "float | None" = None) -> float:
        if not self.begun:
            return 3600.0
        return max(0.0, self.next_s - (time.monotonic() if now_s is None else now_s))

    def sample_if_due(self, now_s: "float | None" = None) -> None:
        now_s = time.monotonic() if now_s is None else now_s
        if self.begun and now_s >= self.next_s:
            self._sample(now_s)

    def _sample(self, now_s: float) -> None:
        period_s = 1.0 / self.hz
        # Missed periods are skipped, not caught up: a burst of samples after a stall would be load of our own making.
        self.next_s = max(self.next_s + period_s, now_s + period_s / 2) if self.samples else now_s + period_s
        self.samples += 1
        zones = self.zones.read()
        self.temperature.add(max(_celsius(value) for value in zones) if zones else None)
        clocks = [float(value) for value in self.clocks.read()] or ([] if self.clocks.fds else cpuinfo_khz(self.root))
        for value in clocks:
            self.frequency.add(value)
        if self.rapl is not None:
            self.rapl.sample(now_s)
        if self.pmic is not None:
            self.pmic.sample(now_s)

    def finish(self, now_s: "float | None" = None) -> None:
        """After the run: the last sample, and everything that we had open or running is closed."""
        if self.begun:
            self._sample(time.monotonic() if now_s is None else now_s)
            self.cpu_after = read_cpu_ticks(self.root)
            self.throttle_after = throttle_bits(self.root, self.core)
            self.begun = False
        if self.nvidia is not None:
            self.nvidia.stop()
        self.zones.close()
        self.clocks.close()

    def summary(self, wall_s: float) -> "dict[str, Any]":
        """M-47 names; a key is there only when the device told."""
        out = {"sample_hz": self.hz, "sample_count": self.samples}  # type: dict[str, Any]
        if self.temperature.count:
            out.update(
                temp_c_start=self.temperature.first,
                temp_c_mean=round(self.temperature.mean, 3),
                temp_c_max=self.temperature.most,
            )
        if self.frequency.count:
            out.update(
                freq_khz_mean=round(self.frequency.mean, 1),
                freq_khz_min=self.frequency.least,
                freq_khz_max=self.frequency.most,
            )
        seen = [bits for bits in (self.throttle_before, self.throttle_after) if bits is not None]
        if seen:
            bits = 0
            for part in seen:
                bits |= part
            out["throttled"] = bits != 0
            out["throttle_flags"] = [name for bit, name in _THROTTLE_BITS if bits & bit]
        out.update(self._cpu_use())
        for meter in (self.rapl, self.pmic):  # a sampled source is better than a counter where a device has both
            if meter is not None:
                out.update(meter.summary())
        if self.nvidia is not None:
            out.update(self.nvidia.summary())
        return out

    def _cpu_use(self) -> "dict[str, Any]":
        shares = {}
        for name, (busy, total) in self.cpu_after.items():
            busy_before, total_before = self.cpu_before.get(name, (busy, total))
            if total > total_before:
                share = 100.0 * (busy - busy_before) / (total - total_before)
                shares[name] = round(min(100.0, max(0.0, share)), 2)
        out = {}  # type: dict[str, Any]
        if "cpu" in shares:
            out["cpu_util_pct_mean"] = shares["cpu"]
        cores = sorted((int(name[3:]), share) for name, share in shares.items() if name[3:].isdigit())
        if cores:
            out["cpu_util_pct_per_core"] = [share for _core, share in cores]
        return out
