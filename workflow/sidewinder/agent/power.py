"""A power meter: a source of watts or joules that a device may have; each says nothing at all where it has none."""

import fcntl
import glob
import os
import struct

from .sysfiles import read_number, read_text, rooted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Energy:
    """Joules under watts sampled over time, by trapezoids; a step of time that is not forward is skipped."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.seconds = 0.0
        self.count = 0
        self._last = None  # type: tuple[float, float] | None

    def add(self, at_s: float, watts: float) -> None:
        if self._last is not None:
            step_s = at_s - self._last[0]
            if step_s <= 0:
                return
            self.joules += step_s * (watts + self._last[1]) / 2
            self.seconds += step_s
        self._last = (at_s, watts)
        self.count += 1

    @property
    def known(self) -> bool:
        return self.count >= 2 and self.seconds > 0

    @property
    def mean_w(self) -> float:
        return self.joules / self.seconds


class Counter:
    """Microjoules of a counter that starts again at its end; one wrap between two readings can be told, two cannot."""

    def __init__(self, path: str, wrap_uj: "int | None") -> None:
        self.path, self.wrap_uj = path, wrap_uj
        self.total_uj = 0
        self.readings = 0
        self._last = None  # type: int | None
        self.broken = False

    def read(self) -> None:
        now = read_number(self.path)
        if now is None:
            self.broken = True
            return
        if self._last is not None:
            step = now - self._last
            if step < 0:
                if not self.wrap_uj:
                    self.broken = True
                    return
                step += self.wrap_uj
            self.total_uj += step
        self._last = now
        self.readings += 1

    @property
    def known(self) -> bool:
        return self.readings >= 2 and not self.broken


class RaplMeter:
    """Intel and AMD packages through powercap. ``psys`` contains the packages and is left out of the sum."""

    def __init__(self, root: str) -> None:
        self.packages = []  # type: list[Counter]
        self.parts = {"core": [], "dram": []}  # type: dict[str, list[Counter]]
        for folder in sorted(glob.glob(rooted(root, "/sys/class/powercap") + "/intel-rapl:*")):
            path = folder + "/energy_uj"
            if read_number(path) is None:
                continue  # root only since 2020
            name = (read_text(folder + "/name") or "").strip()
            counter = Counter(path, read_number(folder + "/max_energy_range_uj"))
            if os.path.basename(folder).count(":") == 1 and name.startswith("package"):
                self.packages.append(counter)
            elif name in self.parts:
                self.parts[name].append(counter)
        self.first_s = None  # type: float | None
        self.last_s = 0.0

    def sample(self, now_s: float) -> None:
        if not self.packages:
            return
        for counter in self.packages + self.parts["core"] + self.parts["dram"]:
            counter.read()
        self.first_s = now_s if self.first_s is None else self.first_s
        self.last_s = now_s

    def summary(self) -> "dict[str, Any]":
        elapsed_s = self.last_s - (self.first_s or 0.0)
        if not self.packages or elapsed_s <= 0 or not all(counter.known for counter in self.packages):
            return {}
        # DRAM is its own domain beside the package; a device without it has package power only.
        dram = [counter for counter in self.parts["dram"] if counter.known]
        joules = sum(counter.total_uj for counter in self.packages + dram) / 1e6
        out = {"energy_j": joules, "power_w_mean": joules / elapsed_s, "energy_source": "rapl"}  # type: dict[str, Any]
        for name, key in (("core", "power_w_core"), ("dram", "power_w_dram")):
            known = [counter for counter in self.parts[name] if counter.known]
            if known:
                out[key] = sum(counter.total_uj for counter in known) / 1e6 / elapsed_s
        return out


class VideoCore:
    """The firmware of a Raspberry Pi, asked through /dev/vcio as ``vcgencmd`` does, without a process."""

    TAG = 0x00030080
    TEXT_BYTES = 1024

    def __init__(self, path: str = "/dev/vcio", ioctl: "Any" = None) -> None:
        self.ioctl = fcntl.ioctl if ioctl is None else ioctl
        self.fd = -1
        if os.path.exists(path):
            try:
                self.fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except OSError:
                pass  # not in group `video`: as good as not there

    def command(self, text: str) -> "str | None":
        if self.fd < 0:
            return None
        words = struct.Struct("=6I")
        size = words.size + self.TEXT_BYTES + 4
        head = words.pack(size, 0, self.TAG, self.TEXT_BYTES, 0, 0)
        buffer = bytearray(head + text.encode().ljust(self.TEXT_BYTES, b"\0") + b"\0\0\0\0")
        request = 0xC0000000 | (struct.calcsize("P") << 16) | (100 << 8)  # _IOWR(100, 0, char *)
        try:
            self.ioctl(self.fd, request, buffer, True)
        except OSError:
            return None
        if words.unpack_from(buffer)[5] != 0:  # the firmware knows no such command
            return None
        answer = bytes(buffer[words.size : words.size + self.TEXT_BYTES])
        return answer.split(b"\0", 1)[0].decode("ascii", "replace")


def pmic_watts(answer: str) -> "dict[str, float]":
    """Watts by rail from ``pmic_read_adc``: the rails that have both a current and a voltage."""
    amperes, volts = {}, {}  # type: dict[str, float], dict[str, float]
    for line in answer.splitlines():
        words = line.split()
        if len(words) != 2 or "=" not in words[1]:
            continue
        rail, value = words[0][:-2], words[1].split("=")[1]
        try:
            if words[0].endswith("_A") and value.endswith("A"):
                amperes[rail] = float(value[:-1])
            elif words[0].endswith("_V") and value.endswith("V"):
                volts[rail] = float(value[:-1])
        except ValueError:
            continue
    return {rail: amperes[rail] * volts[rail] for rail in amperes if rail in volts}


class PmicMeter:
    """The power chip of a Raspberry Pi 5. Its rails do not include what the USB ports feed."""

    def __init__(self, core: VideoCore) -> None:
        self.core = core
        self.total, self.cpu, self.dram = Energy(), Energy(), Energy()

    def sample(self, now_s: float) -> None:
        answer = self.core.command("pmic_read_adc")
        watts = pmic_watts(answer) if answer else {}
        if not watts:
            return
        self.total.add(now_s, sum(watts.values()))
        if "VDD_CORE" in watts:
            self.cpu.add(now_s, watts["VDD_CORE"])
        ddr = [value for rail, value in watts.items() if rail.startswith("DDR_")]
        if ddr:
            self.dram.add(now_s, sum(ddr))

    def summary(self) -> "dict[str, Any]":
        if not self.total.known:
            return {}
        out = {"energy_j": self.total.joules, "power_w_mean": self.total.mean_w, "energy_source": "pmic"}  # type: dict[str, Any]
        if self.cpu.known:
            out["power_w_core"] = self.cpu.mean_w
        if self.dram.known:
            out["power_w_dram"] = self.dram.mean_w
        return out
