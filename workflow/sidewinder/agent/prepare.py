"""A preparation: what is done to the device before a run (M-17) and undone after it.

Every step that fails is a warning; a step that an axis of the sweep needs (``require``) refuses the run instead, so
that a governor is never only written into the record. Steps are verified by reading back.
"""

import glob
import os

from .evidence import read_memory
from .processes import SpawnError, run_command
from .sysfiles import read_json, read_number, read_text, rooted, write_all, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

STEPS = ("reset_swap", "drop_caches", "governor", "freq_khz", "settle_s")
_COMMAND_S = 60.0


class StepFailed(Exception):
    """A step that could not be done, with the reason for people."""


class Preparation:
    def __init__(
        self,
        root: str,
        folder: str,
        between: "Callable[[], object]",
        settle: "Callable[[float], object]",
        sudo: "tuple[str, ...]" = ("sudo", "-n"),
    ) -> None:
        self.root = root
        self.between, self.settle, self.sudo = between, settle, sudo
        self.steps = {}  # type: dict[str, dict[str, Any]]
        self.required = []  # type: list[str]
        self.undo = {}  # type: dict[str, str]  # path -> what stood there
        self.undo_path = os.path.join(folder, "restore.json")
        self.restored = None  # type: bool | None
        self.restore_governor = True

    def apply(self, wanted: "dict[str, Any]", required: "Collection[str]") -> None:
        self.required = list(required)
        self.restore_governor = wanted.get("restore_governor", True) is not False
        for name in STEPS:
            value = wanted.get(name)
            if value is None or value is False:
                continue
            try:
                told = getattr(self, "_" + name)(value)
                self.steps[name] = dict({"ok": True, "wanted": value}, **told)
            except (StepFailed, OSError, ValueError) as error:
                self.steps[name] = {"ok": False, "wanted": value, "reason": str(error)}
        for name in self.required:
            if name not in self.steps:
                self.steps[name] = {"ok": False, "reason": "the task requires this step but does not say its value"}

    def refusal(self) -> "str | None":
        """The sentence that refuses the run, None when nothing required failed."""
        failed = [name for name in self.required if not self.steps[name]["ok"]]
        return "; ".join(f"{name}: {self.steps[name]['reason']}" for name in failed) or None

    def report(self) -> "dict[str, Any]":
        warnings = [f"{name} not applied: {step['reason']}" for name, step in self.steps.items() if not step["ok"]]
        out = {"steps": self.steps}  # type: dict[str, Any]
        if self.restored is not None:
            out["restored"] = self.restored
            if not self.restored:
                warnings.append("governor or clock could not be set back")
        if warnings:
            out["warnings"] = warnings
        return out

    # -- steps -------------------------------------------------------------------------------------------------------

    def _reset_swap(self, _wanted: "Any") -> "dict[str, Any]":
        memory = read_memory(self.root)
        used = memory.get("swap_used_bytes")
        if used is None or memory.get("swap_total_bytes") == 0:
            raise StepFailed("this device has no swap")
        if used == 0:
            return {"was_used_bytes": 0}
        if used > memory.get("mem_available_bytes", 0):
            raise StepFailed(f"{used} bytes lie in swap, more than memory can take back")
        self._privileged(["swapoff", "-a"])
        self._privileged(["swapon", "-a"])
        return {"was_used_bytes": used}

    def _drop_caches(self, _wanted: "Any") -> "dict[str, Any]":
        os.sync()
        self._write(rooted(self.root, "/proc/sys/vm/drop_caches"), "3")
        return {}

    def _policies(self) -> "list[str]":
        cpu = rooted(self.root, "/sys/devices/system/cpu")
        found = sorted(glob.glob(cpu + "/cpufreq/policy*")) or sorted(glob.glob(cpu + "/cpu[0-9]*/cpufreq"))
        if not found:
            raise StepFailed("this device has no CPU frequency control (no cpufreq in /sys)")
        return found

    def _governor(self, wanted: "Any") -> "dict[str, Any]":
        policies = self._policies()
        before = {}
        for policy in policies:
            offered = (read_text(policy + "/scaling_available_governors") or "").split()
            if offered and wanted not in offered:
                raise StepFailed(f"{wanted!r} is not offered by {os.path.basename(policy)}, only {', '.join(offered)}")
        for policy in policies:
            before[os.path.basename(policy)] = self._set(
                policy + "/scaling_governor", str(wanted), self.restore_governor
            )
        return {"from": before}

    def _freq_khz(self, wanted: "Any") -> "dict[str, Any]":
        frequency = int(wanted)
        policies = self._policies()
        for policy in policies:
            low, high = read_number(policy + "/cpuinfo_min_freq"), read_number(policy + "/cpuinfo_max_freq")
            if low is None or high is None or not low <= frequency <= high:
                raise StepFailed(f"{frequency} kHz is outside of {low} to {high} kHz of {os.path.basename(policy)}")
        before = {}
        for policy in policies:
            lowest, highest = policy + "/scaling_min_freq", policy + "/scaling_max_freq"
            # The kernel refuses a minimum above the maximum at any instant: widen first, then narrow.
            now_high = read_number(highest)
            order = (highest, lowest) if now_high is not None and frequency > now_high else (lowest, highest)
            was = {os.path.basename(path): self._set(path, str(frequency), True) for path in order}
            before[os.path.basename(policy)] = was
        return {"from": before}

    def _settle_s(self, wanted: "Any") -> "dict[str, Any]":
        self.settle(float(wanted))
        return {}

    # -- writing -----------------------------------------------------------------------------------------------------

    def _set(self, path: str, value: str, restore: bool) -> str:
        """Write and read back; what stood there is put on disk first, so that even a killed runner can be undone."""
        was = (read_text(path) or "").strip()
        if not was:
            raise StepFailed(f"{path} cannot be read")
        if was == value:
            return was
        if restore and path not in self.undo:
            self.undo[path] = was
            write_json(self.undo_path, self.undo)
        self._write(path, value)
        now = (read_text(path) or "").strip()
        if now != value:
            raise StepFailed(f"the device kept {now!r} in {path}")
        return was

    def _write(self, path: str, value: str) -> None:
        write_setting(path, value, self.sudo, self.between)

    def _privileged(self, argv: "list[str]") -> None:
        _privileged_command(argv, b"", self.sudo, self.between)

    def restore(self) -> None:
        if not self.undo:
            return
        # Not `between`: a stop or an expired lease must not end the run with foreign clocks left behind.
        self.restored = undo_settings(self.undo, self.sudo)
        if self.restored:
            os.unlink(self.undo_path)


def write_setting(
    path: str, value: str, sudo: "tuple[str, ...]" = ("sudo", "-n"), between: "Callable[[], object] | None" = None
) -> None:
    """Write a kernel setting, by passwordless sudo where it is not ours to write."""
    if os.access(path, os.W_OK) or os.geteuid() == 0:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        except OSError as error:
            raise StepFailed(f"{path}: {error.strerror}") from None
        try:
            write_all(fd, value.encode())
        except OSError as error:
            raise StepFailed(f"{path} does not take {value!r}: {error.strerror}") from None
        finally:
            os.close(fd)
    else:
        _privileged_command(["tee", path], value.encode(), sudo, between)


def _privileged_command(
    argv: "list[str]", stdin: bytes, sudo: "tuple[str, ...]", between: "Callable[[], object] | None"
) -> None:
    command = argv if os.geteuid() == 0 else list(sudo) + argv
    try:
        returncode, _out, err = run_command(command, stdin=stdin, timeout_s=_COMMAND_S, between=between)
    except SpawnError as error:
        raise StepFailed(f"needs root: {error.detail}") from None
    if returncode != 0:
        said = bytes(err.head).decode("utf-8", "replace").strip() or f"exit code {returncode}"
        raise StepFailed(f"{' '.join(command[:3])}: {said}")


def undo_settings(undo: "dict[str, str]", sudo: "tuple[str, ...]" = ("sudo", "-n")) -> bool:
    """Write everything back, twice: while a minimum stands above the old maximum one of the writes is refused."""
    done = True
    for _round in range(2):
        done = True
        for path, value in reversed(list(undo.items())):
            try:
                if (read_text(path) or "").strip() != value:
                    write_setting(path, value, sudo)
                done = done and (read_text(path) or "").strip() == value
            except StepFailed:
                done = False
        if done:
            break
    return done


def undo_after_kill(folder: str) -> "bool | None":
    """Set back what a killed runner left changed; None: nothing was."""
    path = os.path.join(folder, "restore.json")
    undo = read_json(path)
    if not isinstance(undo, dict) or not undo:
        return None
    done = undo_settings(undo)
    if done:
        os.unlink(path)
    return done
