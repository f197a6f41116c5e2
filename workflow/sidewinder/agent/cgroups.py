"""A control group: the limits and counters that hold for this process, under cgroup v1 or v2.

Read from inside, never from any configuration: in a container the paths that /proc/self/cgroup names may lie outside
of what is mounted, so each is taken relative to the root of its mount.
"""

import os

from .sysfiles import read_number, read_text, rooted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_UNLIMITED_V1 = 1 << 60
_LIMIT_FILES = {
    1: (
        ("cpu", "cpu.cfs_quota_us"),
        ("cpu", "cpu.cfs_period_us"),
        ("cpu", "cpu.shares"),
        ("memory", "memory.limit_in_bytes"),
        ("cpuset", "cpuset.cpus"),
    ),
    2: (("", "cpu.max"), ("", "cpu.weight"), ("", "memory.max"), ("", "cpuset.cpus")),
}
_OWN_GROUPS = "/proc/self/cgroup"
_known = {}  # type: dict[tuple[str, str], Cgroup]


class Cgroup:
    """The folders of our control group by controller; ``version`` 0 where there is none."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.folders = {}  # type: dict[str, str]
        self.version = 0
        paths = self._paths()
        mounts = self._mounts()
        self._tops = {mount for _root, mount, _kind, _options in mounts}
        for mount_root, mount, kind, options in mounts:
            names = [""] if kind == "cgroup2" else options
            for name in names:
                if name not in paths:
                    continue
                folder = self._inside(paths[name], mount_root, mount)
                if folder is not None and name not in self.folders:
                    self.folders[name] = folder
        unified = self.folders.get("")
        if unified and os.path.exists(os.path.join(unified, "cgroup.controllers")) and "memory" not in self.folders:
            self.version = 2
        elif "memory" in self.folders or "cpu" in self.folders:
            self.version = 1

    def _paths(self) -> "dict[str, str]":
        paths = {}
        for line in (read_text(rooted(self.root, _OWN_GROUPS)) or "").splitlines():
            parts = line.split(":", 2)
            if len(parts) == 3:
                for name in parts[1].split(","):
                    paths[name] = parts[2]
        return paths

    def _mounts(self) -> "list[tuple[str, str, str, list[str]]]":
        mounts = []
        for line in (read_text(rooted(self.root, "/proc/self/mountinfo")) or "").splitlines():
            left, _, right = line.partition(" - ")
            fields, kinds = left.split(), right.split()
            if len(fields) >= 5 and len(kinds) >= 3 and kinds[0] in ("cgroup", "cgroup2"):
                mounts.append((fields[3], rooted(self.root, fields[4]), kinds[0], kinds[2].split(",")))
        return mounts

    @staticmethod
    def _inside(path: str, mount_root: str, mount: str) -> "str | None":
        below = path
        if mount_root != "/" and (path == mount_root or path.startswith(mount_root.rstrip("/") + "/")):
            below = path[len(mount_root) :]
        folder = mount + (below if below.startswith("/") else "/" + below)
        folder = folder.rstrip("/")
        if os.path.isdir(folder):
            return folder
        return mount if os.path.isdir(mount) else None

    def _file(self, controller: str, name: str) -> "str | None":
        folder = self.folders.get(controller if self.version == 1 else "")
        return read_text(os.path.join(folder, name)) if folder else None

    def _number(self, controller: str, name: str) -> "int | None":
        folder = self.folders.get(controller if self.version == 1 else "")
        return read_number(os.path.join(folder, name)) if folder else None

    def counters(self) -> "dict[str, int]":
        """What only grows: ``oom_kills``, ``throttled_us``, ``throttled_periods``, ``periods``, ``memory_failcnt``,
        and ``memory_peak_bytes`` (since the group was made)."""
        found = {}  # type: dict[str, int | None]
        stat = _pairs(self._file("cpu", "cpu.stat"))
        if self.version == 2:
            events = _pairs(self._file("memory", "memory.events"))
            found["oom_kills"] = events.get("oom_kill")
            found["memory_failcnt"] = events.get("max")
            found["memory_peak_bytes"] = self._number("memory", "memory.peak")
            found["throttled_us"] = stat.get("throttled_usec")
        elif self.version == 1:
            found["oom_kills"] = _pairs(self._file("memory", "memory.oom_control")).get("oom_kill")
            found["memory_failcnt"] = self._number("memory", "memory.failcnt")
            found["memory_peak_bytes"] = self._number("memory", "memory.max_usage_in_bytes")
            found["throttled_us"] = stat["throttled_time"] // 1000 if "throttled_time" in stat else None
        found["throttled_periods"] = stat.get("nr_throttled")
        found["periods"] = stat.get("nr_periods")
        return {name: value for name, value in found.items() if value is not None}

    def _quota_of(self, folder: "str | None") -> "tuple[int | None, int | None]":
        """Microseconds of a group's quota (negative: none is set) and of its period; None: not to be read."""
        if not folder:
            return None, None
        if self.version == 1:
            quota_us = read_number(os.path.join(folder, "cpu.cfs_quota_us"))
            return quota_us, read_number(os.path.join(folder, "cpu.cfs_period_us"))
        words = (read_text(os.path.join(folder, "cpu.max")) or "").split()
        if len(words) != 2 or not words[1].isdigit():
            return None, None
        return int(words[0]) if words[0].isdigit() else -1, int(words[1])

    def _quotas(self) -> "list[tuple[int | None, int | None]]":
        """From our group up to the root of the mount."""
        found = []
        folder = self.folders.get("cpu" if self.version == 1 else "")
        while folder:
            found.append(self._quota_of(folder))
            if folder in self._tops:
                break
            folder = os.path.dirname(folder)
        return found

    def limit_files(self) -> "list[str]":
        """Where somebody sets what ``limits`` reads, as far as it is there."""
        named = [(self.folders.get(controller), name) for controller, name in _LIMIT_FILES.get(self.version, ())]
        paths = [os.path.join(folder, name) for folder, name in named if folder]
        return [path for path in paths if os.path.exists(path)]

    def _own_memory(self) -> "int | None":
        """Bytes of our own group's limit (negative: none is set); None: not to be read."""
        if self.version == 1:
            limit = self._number("memory", "memory.limit_in_bytes")
            return -1 if limit is not None and limit >= _UNLIMITED_V1 else limit
        text = (self._file("memory", "memory.max") or "").strip()
        return -1 if text == "max" else int(text) if text.isdigit() else None

    def limits(self) -> "dict[str, Any]":
        """What holds now, a limit that is not set or not known being absent: ``version``, ``cpu_quota_us`` and
        ``cpu_period_us`` of our own group, ``cpu_quota_cores`` (the tightest from there up), ``memory_max_bytes``,
        ``cpu_weight`` (v2) or ``cpu_shares`` (v1), ``cpuset``; ``unlimited``: which of ``cpu`` and ``memory`` our own
        group says to have no limit."""
        if not self.version:
            return {}
        quotas = self._quotas()
        quota_us, period_us = quotas[0] if quotas else (None, None)
        cores = [quota / period for quota, period in quotas if quota is not None and quota > 0 and period]
        memory = self._own_memory()
        unlimited = [name for name, limit in (("cpu", quota_us), ("memory", memory)) if limit is not None and limit < 0]
        found = {
            "version": self.version,
            "cpu_quota_us": None if quota_us is not None and quota_us < 0 else quota_us,
            "cpu_period_us": period_us,
            "cpu_quota_cores": min(cores) if cores else None,
            "memory_max_bytes": None if memory is not None and memory < 0 else memory,
            "unlimited": unlimited or None,
        }  # type: dict[str, Any]
        if self.version == 2:
            found["cpu_weight"] = self._number("cpu", "cpu.weight")
            found["cpuset"] = (self._file("cpuset", "cpuset.cpus.effective") or "").strip() or None
        else:
            found["cpu_shares"] = self._number("cpu", "cpu.shares")
            found["cpuset"] = (self._file("cpuset", "cpuset.effective_cpus") or "").strip() or None
        return {name: value for name, value in found.items() if value is not None}


def own_cgroup(root: str = "/") -> Cgroup:
    """The group of this process; found once for all who are in the same one, so that a fork finds it ready."""
    key = (root, read_text(rooted(root, _OWN_GROUPS)) or "")
    if key not in _known:
        _known[key] = Cgroup(root)
    return _known[key]


def _pairs(text: "str | None") -> "dict[str, int]":
    found = {}
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[1].lstrip("-").isdigit():
            found[words[0]] = int(words[1])
    return found
