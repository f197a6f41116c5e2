"""Device facts: what machine this is (M-41, M-42), as far as it tells; what it does not tell is absent."""

import glob
import os
import sys

from .cgroups import Cgroup
from .clocks import boot_id
from .gpus import gpu_facts
from .logout import logout_facts
from .power import RaplMeter, VideoCore
from .processes import HAS_PROC, command_output, load_libc
from .sysfiles import read_text, rooted
from .telemetry import cpufreq_paths, cpuinfo_khz, read_cpu_ticks, thermal_paths, throttle_bits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Those that decide which kernel an inference engine picks.
_KERNEL_FLAGS = frozenset(
    [
        "sse3",
        "ssse3",
        "sse4_1",
        "sse4_2",
        "avx",
        "f16c",
        "fma",
        "avx2",
        "avx_vnni",
        "avx512f",
        "avx512bw",
        "avx512vl",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_tile",
        "amx_int8",
        "amx_bf16",
        "neon",
        "asimd",
        "asimdhp",
        "asimddp",
        "asimdfhm",
        "i8mm",
        "bf16",
        "sve",
        "sve2",
        "sme",
        "vsx",
    ]
)


def device_facts(root: str = "/", environment: "dict[str, str] | None" = None) -> "dict[str, Any]":
    """``environment``: what runs here have beside the login's own; it may hide GPUs."""
    system = os.uname()
    facts = {
        "os": system.sysname,
        "os_release": system.release,
        "kernel": system.version,
        "machine": system.machine,
        "hostname": system.nodename,
        "logical_cores": os.cpu_count(),
        "boot_id": boot_id() or None,
        "python": sys.version.split()[0],
        "python_executable": sys.executable or None,
        "compiler": sys.version.partition("[")[2].rstrip("]") or None,
        "libc": _libc_version(),
        "placement": placement(root),
        "capabilities": capabilities(root),
        "logout": logout_facts(root) or None,
    }  # type: dict[str, Any]
    facts.update(_darwin_facts() if sys.platform == "darwin" else _linux_facts(root))
    if root == "/":
        facts.update(gpu_facts({**os.environ, **(environment or {})}))
    return {name: value for name, value in facts.items() if value is not None}


def _libc_version() -> "str | None":
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def placement(root: str = "/") -> "dict[str, Any]":
    """Where in the machine this process may run, read from inside and never copied from a config."""
    out = {}  # type: dict[str, Any]
    limits = Cgroup(root).limits()
    if limits:
        out["cgroup"] = limits
    if "cpu_quota_cores" in limits:
        out["cpu_quota_cores"] = limits["cpu_quota_cores"]
    if hasattr(os, "sched_getaffinity"):
        out["affinity"] = sorted(os.sched_getaffinity(0))
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        out["runtime"] = "kubernetes"
    return out


def _linux_facts(root: str) -> "dict[str, Any]":
    facts = {}  # type: dict[str, Any]
    for line in (read_text(rooted(root, "/etc/os-release")) or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            facts["distro"] = line.partition("=")[2].strip().strip('"')
    for line in (read_text(rooted(root, "/proc/meminfo")) or "").splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "SwapTotal"):
            facts["ram_bytes" if name == "MemTotal" else "swap_bytes"] = int(value.split()[0]) * 1024
    facts.update(_cpuinfo(read_text(rooted(root, "/proc/cpuinfo")) or ""))
    board = read_text(rooted(root, "/proc/device-tree/model")) or read_text(
        rooted(root, "/sys/class/dmi/id/product_name")
    )
    if board:
        facts["board_model"] = board.strip("\0 \n")
    siblings = set()
    for path in glob.glob(rooted(root, "/sys/devices/system/cpu") + "/cpu[0-9]*/topology/thread_siblings_list"):
        siblings.add((read_text(path) or "").strip())
    if siblings:
        facts["physical_cores"] = len(siblings)
    return facts


def _cpuinfo(text: str) -> "dict[str, Any]":
    facts = {}  # type: dict[str, Any]
    cores = set()
    package = core = None  # type: str | None
    for line in [*text.splitlines(), ""]:
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "model name" or (name in ("Model", "Hardware") and "cpu" not in facts):
            facts["cpu"] = value
        elif name in ("flags", "Features") and "cpu_flags" not in facts:
            facts["cpu_flags"] = sorted(_KERNEL_FLAGS.intersection(value.split()))
        elif name == "physical id":
            package = value
        elif name == "core id":
            core = value
        elif not name:
            if core is not None:
                cores.add((package, core))
            package = core = None
    if cores:
        facts["physical_cores"] = len(cores)
    return facts


def _darwin_facts() -> "dict[str, Any]":
    names = {
        "machdep.cpu.brand_string": "cpu",
        "hw.physicalcpu": "physical_cores",
        "hw.memsize": "ram_bytes",
        "hw.model": "board_model",
        "kern.osproductversion": "distro",
    }
    facts = {}  # type: dict[str, Any]
    for line in (command_output(["sysctl", *names]) or "").splitlines():
        name, _, value = line.partition(": ")
        if name in names:
            facts[names[name]] = int(value) if names[name] in ("physical_cores", "ram_bytes") else value
    if "distro" in facts:
        facts["distro"] = "macOS " + facts["distro"]
    return facts


def capabilities(root: str = "/") -> "dict[str, bool]":
    """What this device can tell or be told (M-77), and which proofs of death it has."""
    core = VideoCore(rooted(root, "/dev/vcio"))
    governors = glob.glob(rooted(root, "/sys/devices/system/cpu") + "/cpufreq/policy*/scaling_governor") or glob.glob(
        rooted(root, "/sys/devices/system/cpu") + "/cpu[0-9]*/cpufreq/scaling_governor"
    )
    nvidia = any(os.access(os.path.join(folder, "nvidia-smi"), os.X_OK) for folder in os.get_exec_path())
    return {
        "temperature": bool(thermal_paths(root)),
        "throttle_flags": throttle_bits(root, core) is not None,
        "cpu_freq": bool(cpufreq_paths(root)) or bool(cpuinfo_khz(root)),
        "pmic": core.command("pmic_read_adc") is not None,
        "rapl": bool(RaplMeter(root).packages),
        "nvidia_smi": nvidia,
        "cpu_utilisation": bool(read_cpu_ticks(root)),
        "peak_rss": True,
        "pressure": os.path.exists(rooted(root, "/proc/pressure/cpu")),
        "oom_count": "oom_kills" in Cgroup(root).counters(),
        "dvfs_read": bool(governors),
        "dvfs_write": bool(governors) and all(os.access(path, os.W_OK) for path in governors),
        "proc_sweep": HAS_PROC,
        "dies_with_runner": load_libc() is not None,
    }
