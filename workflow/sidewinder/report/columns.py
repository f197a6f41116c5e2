"""A column of the points table: its name (with its unit), its type, what it means and where it comes from.

Names are those that people who analyse such records already use (docs/report.md lists them). A column takes the
planned value where the plan has one, else the first of its paths that the record knows; what neither knows is NA.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from sidewinder.model import Json

Type = Literal["string", "Int64", "Float64", "boolean", "datetime64[us, UTC]"]
TIME: Final[Type] = "datetime64[us, UTC]"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    meaning: str
    paths: tuple[str, ...] = ()  # dotted paths into the record, the first that is there wins
    planned: str | None = None  # attribute of the planned point, which wins over the record


def _c(name: str, type_: Type, meaning: str, *paths: str, planned: str | None = None) -> Column:
    return Column(name, type_, meaning, tuple(paths), planned)


# Filled by tables.row itself: they say what became of the point, and so cannot come from one place of the record.
STATE: Final[tuple[Column, ...]] = (
    _c("run_id", "string", "name of the point"),
    _c("experiment", "string", "name of the sweep", planned="experiment"),
    _c("device", "string", "the machine that the point is pinned to", planned="device"),
    _c("status", "string", "ok, failed, hole (never measured, the record says why), broken (unreadable) or missing"),
    _c("done", "boolean", "measured, or accepted as it is: nothing is left to do"),
    _c("planned", "boolean", "part of the plan; false for what was measured on another device by failover"),
    _c("accepted", "string", "why this failure is accepted"),
    _c("moved_to", "string", "run id under which another device took the work over"),
    _c(
        "failover_from", "string", "device that the work came from; never part of an aggregate", planned="failover_from"
    ),
    _c("failure_class", "string", "who is at fault (docs/design.md §3)"),
    _c("failure", "string", "what went wrong, in a sentence"),
    _c("warnings", "string", "one a line"),
    _c("tags", "string", "one a line"),
    _c("attempts", "Int64", "how often it was tried"),
    _c("attempts_json", "string", "the attempts, as in the record"),
    _c("samples_json", "string", "the repeats behind each mean, as in the record"),
    _c("command", "string", "argv of the planned command, one argument a line"),
    _c("started_utc", TIME, "start of the last attempt"),
    _c("timestamp_utc", TIME, "end, by the device's clock"),
)

FIELDS: Final[tuple[Column, ...]] = (
    _c("duration_s", "Float64", "how long the run took", "duration_s"),
    # what was measured
    _c("backend", "string", "what measures", "backend.name", planned="backend"),
    _c("mode", "string", "which of its measurements", "knobs.mode", planned="mode"),
    _c("backend_version", "string", "version of the engine", "backend.version"),
    _c("backend_build", "string", "build of the engine", "backend.build"),
    _c("backend_binary", "string", "path of the engine on the device", "backend.binary"),
    _c("provider", "string", "execution provider", "backend.execution_provider"),
    _c("model", "string", "id of the model", "workload.model", planned="model"),
    _c("quant", "string", "quantisation", "workload.quantization", planned="quantization"),
    _c("family", "string", "architecture of the model", "workload.architecture"),
    _c("params_B", "Float64", "parameters, in billions", "workload.params"),
    _c("model_bytes", "Int64", "size of the model file", "workload.model_bytes"),
    _c("weight_bytes", "Int64", "size of the weights", "workload.weight_bytes"),
    _c("prompt_tokens", "Int64", "tokens read", "workload.prompt_tokens", planned="prompt_tokens"),
    _c("output_tokens", "Int64", "tokens written", "workload.output_tokens", planned="output_tokens"),
    _c("context_tokens", "Int64", "tokens already in the cache", "workload.context_tokens", planned="context_tokens"),
    _c("batch", "Int64", "batch size", "workload.batch_size", planned="batch_size"),
    _c("input_shape", "string", "shape of the input", "workload.input_shape"),
    _c("threads", "Int64", "threads", "knobs.threads", planned="threads"),
    _c("governor", "string", "frequency governor", "knobs.governor", planned="governor"),
    _c("freq_khz", "Int64", "fixed clock", "knobs.freq_khz", planned="freq_khz"),
    _c("repetitions", "Int64", "repeats asked for", "knobs.repetitions", planned="repetitions"),
    _c("warmup", "Int64", "warm-up runs", "knobs.warmup", planned="warmup"),
    _c("flash_attention", "string", "flash attention", "knobs.flash_attention", planned="flash_attention"),
    _c("kv_quant", "string", "type of the key/value cache", "knobs.kv_quantization", planned="kv_quantization"),
    # the device, as it told
    _c("device_kind", "string", "local, ssh or kubernetes", "device.kind"),
    _c("cpu", "string", "processor", "device.cpu"),
    _c("board", "string", "board", "device.board_model"),
    _c("arch", "string", "machine", "device.machine"),
    _c("cores", "Int64", "logical cores", "device.logical_cores"),
    _c("physical_cores", "Int64", "physical cores", "device.physical_cores"),
    _c("ram_bytes", "Int64", "memory", "device.ram_bytes"),
    _c("dram_peak_GBs", "Float64", "declared peak memory bandwidth", "device.dram_peak_GBs"),
    _c("accelerator", "string", "accelerator", "device.accelerator"),
    _c("gpu", "string", "first GPU that a run sees", "device.gpu"),
    _c("os", "string", "operating system", "device.distro", "device.os"),
    _c("kernel", "string", "release of the kernel", "device.os_release", "device.kernel"),
    _c("device_python", "string", "interpreter of the agent", "device.python"),
    _c("boot_id", "string", "which boot of the device", "device.boot_id"),
    _c(
        "cpu_quota_cores",
        "Float64",
        "CPU quota in force, in cores; NA: none or not known",
        "device.placement.cpu_quota_cores",
    ),
    _c(
        "memory_max_bytes",
        "Int64",
        "memory limit in force; NA: none or not known",
        "device.placement.cgroup.memory_max_bytes",
    ),
    _c("unlimited", "string", "which of cpu and memory have no limit at all", "device.placement.cgroup.unlimited"),
    _c("cpuset", "string", "CPUs that it might run on", "device.placement.cgroup.cpuset"),
    _c("pod", "string", "pod that it ran in", "device.pod.name"),
    _c("namespace", "string", "namespace of the pod", "device.pod.namespace"),
    _c("node", "string", "node of the pod", "device.pod.node", "device.placement.node"),
    _c("cpu_asked", "string", "CPU limit that the config asks for; NA: none", "device.pod.asked.cpu"),
    _c("memory_asked", "string", "memory limit that the config asks for; NA: none", "device.pod.asked.memory"),
    _c("qos_class", "string", "quality-of-service class of the pod", "device.pod.qos", "device.placement.qos_class"),
    _c("image", "string", "image of the pod, as it was asked for", "device.pod.image"),
    _c("image_id", "string", "digest of the image that ran", "device.pod.image_id", "device.placement.image_id"),
    _c("runtime", "string", "runtime of the pod", "device.pod.node_info.runtime", "device.placement.runtime"),
    _c("restarts", "Int64", "how often the pod's container had been started anew", "device.pod.restarts"),
    _c("node_pods", "Int64", "other pods on its node, when it was connected", "device.pod.node_others.pods"),
    _c(
        "node_cpu_request_cores",
        "Float64",
        "CPU that those had asked for, in cores",
        "device.pod.node_others.cpu_request_cores",
    ),
    _c("node_boot_id", "string", "boot that the pod's node tells", "device.pod.node_info.boot_id"),
    # metrics
    _c("ttft_ms", "Float64", "time to the first token", "metrics.ttft_ms"),
    _c("prefill_tps", "Float64", "prompt tokens a second", "metrics.prefill_tps"),
    _c("decode_tps", "Float64", "output tokens a second", "metrics.decode_tps"),
    _c("e2e_ms", "Float64", "whole request", "metrics.e2e_latency_ms"),
    _c("load_ms", "Float64", "loading the model", "metrics.load_ms"),
    _c("latency_ms", "Float64", "mean latency", "metrics.latency_ms_mean"),
    _c("latency_p50_ms", "Float64", "median latency", "metrics.latency_ms_p50"),
    _c("latency_p95_ms", "Float64", "95th percentile", "metrics.latency_ms_p95"),
    _c("latency_p99_ms", "Float64", "99th percentile", "metrics.latency_ms_p99"),
    _c("ips", "Float64", "inferences a second", "metrics.throughput_ips"),
    _c("peak_rss_bytes", "Int64", "largest resident size", "metrics.peak_rss_bytes"),
    _c("model_resident_bytes", "Int64", "resident size of the model", "metrics.model_resident_bytes"),
    _c("decode_bw_GBs", "Float64", "decode speed times bytes of weights", "metrics.decode_bw_GBs"),
    _c("bw_util_pct", "Float64", "share of the declared peak bandwidth", "metrics.bw_utilization_pct"),
    _c("stdev_pct", "Float64", "spread as the engine told it", "metrics.stdev_pct"),
    # telemetry
    _c("power_w", "Float64", "mean power", "telemetry.power_w_mean"),
    _c("power_core_w", "Float64", "mean power of the cores", "telemetry.power_w_core"),
    _c("power_dram_w", "Float64", "mean power of the memory", "telemetry.power_w_dram"),
    _c("energy_j", "Float64", "energy", "telemetry.energy_j"),
    _c("energy_per_token_mj", "Float64", "energy a token", "telemetry.energy_per_token_mj"),
    _c("gpu_power_w", "Float64", "mean power of the GPU", "telemetry.gpu_power_w_mean"),
    _c("gpu_energy_j", "Float64", "energy of the GPU", "telemetry.gpu_energy_j"),
    _c("gpu_temp_c", "Float64", "highest temperature of the GPU", "telemetry.gpu_temp_c_max"),
    _c("temp_c", "Float64", "highest temperature", "telemetry.temp_c_max"),
    _c("throttled", "boolean", "the device slowed itself down", "telemetry.throttled"),
    _c("cpu_util_pct", "Float64", "mean use of the processor", "telemetry.cpu_util_pct_mean"),
    _c("freq_mean_khz", "Float64", "mean clock", "telemetry.freq_khz_mean"),
    # conditions
    _c("cpu_s", "Float64", "processor time of the run", "conditions.cpu_s"),
    _c("wall_s", "Float64", "elapsed time of the run", "conditions.wall_s"),
    _c("cpu_over_wall", "Float64", "cores kept busy: cpu_s / wall_s", "conditions.cpu_over_wall"),
    _c(
        "involuntary_switches",
        "Int64",
        "how often the run lost its core to something else",
        "conditions.involuntary_switches",
    ),
    # order and provenance
    _c("order_position", "Int64", "place in the order of its device", "order.position"),
    _c("order_predecessor", "string", "what ran just before it on its device", "order.predecessor"),
    _c("order_by", "string", "how the order was made", "order.by"),
    _c("order_seed", "Int64", "seed of the order", "order.seed"),
    _c("clock_offset_s", "Float64", "device's clock less the controller's", "clock.offset_s"),
    _c("clock_bound_s", "Float64", "how far off that may be", "clock.bound_s"),
    _c("campaign", "string", "the run folder's own id", "campaign"),
    _c("sidewinder_version", "string", "version of this program", "versions.sidewinder"),
    _c("snakemake_version", "string", "version of Snakemake", "versions.snakemake"),
    _c("controller_python", "string", "interpreter of the controller", "versions.python"),
)

LOAD: Final[tuple[Column, ...]] = tuple(
    _c(f"load_{when}", "Float64", f"load average (1 min) {when} the run") for when in ("before", "after")
)
PRESSURE: Final[tuple[Column, ...]] = tuple(
    _c(f"pressure_{what}_{when}_pct", "Float64", f"share of time that something waited for {what}, {when} the run")
    for what in ("cpu", "memory", "io")
    for when in ("before", "during", "after")
)
CGROUP: Final[tuple[Column, ...]] = (
    _c("cgroup_throttled_s", "Float64", "time that the CPU quota held the run back"),
    _c(
        "cgroup_throttled_periods",
        "Int64",
        "periods of the quota in which it did",
        "conditions.cgroup.throttled_periods",
    ),
    _c("cgroup_periods", "Int64", "periods in which anything ran", "conditions.cgroup.periods"),
)

COLUMNS: Final[Mapping[str, Column]] = {c.name: c for c in (*STATE, *FIELDS, *LOAD, *PRESSURE, *CGROUP)}
# metric as the record names it -> column; any other metric X is `metrics.X`
METRIC_COLUMNS: Final[Mapping[str, str]] = {
    path.removeprefix("metrics."): c.name for c in FIELDS for path in c.paths if path.startswith("metrics.")
}
# families of columns whose members depend on the sweep
PREFIXES: Final[Mapping[str, str]] = {
    "parameters.": "free axis of the config",
    "extra.": "further setting of the engine",
    "metrics.": "metric that has no column of its own",
    "sd.": "standard deviation over the repeats of one run, in the unit of the column it names",
    "cv_pct.": "the same as a share of the mean of the repeats",
    "n.": "number of repeats behind it",
}


def metric_column(metric: str) -> str:
    return METRIC_COLUMNS.get(metric, f"metrics.{metric}")


@functools.cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def look_up(record: Mapping[str, Json], path: str) -> Json:
    """The value at a dotted path; None where any step of it is absent or of another shape."""
    value: Json = record
    for key in _steps(path):
        if type(value) is not dict:  # a record is plain JSON; an isinstance of Mapping costs ten times as much
            return None
        value = value.get(key)
    return value


def number(value: Json) -> float | int | None:
    """A finite number, or None: NaN, infinities, booleans and text measure nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isinstance(value, int) or math.isfinite(value) else None


def numbers(values: Json) -> list[float]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        return []
    return [float(v) for v in values if number(v) is not None]


# Control characters break CSV readers and are not allowed in HTML; a lone surrogate cannot be encoded at all.
_UNPRINTABLE: Final = dict.fromkeys(
    [*range(0x20), *range(0x7F, 0xA0), 0xFFFE, 0xFFFF, *range(0xFDD0, 0xFDF0)], "\ufffd"
)
_UNPRINTABLE.update({0x09: "\t", 0x0A: "\n"})


def clean(text: str) -> str:
    """Text that every reader of our files can show: odd characters become the replacement mark, line ends ``\\n``."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = text.translate(_UNPRINTABLE)
    try:
        shown.encode("utf-8")
    except UnicodeEncodeError:
        shown = "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in shown)
    return shown


def instant(value: Json) -> datetime | None:
    """A time with offset, in UTC; None for anything else, also for a time that does not say its zone."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
        return parsed.astimezone(UTC) if parsed.tzinfo else None
    except (ValueError, OverflowError):
        return None


def coerce(value: Json, type_: Type) -> Json:
    """``value`` as its column's type, or None where it is not of that type."""
    if value is None:
        return None
    if type_ == "string":
        if isinstance(value, str):
            return clean(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, list | tuple):  # a shape, or words
            return clean((", " if any(isinstance(v, str) for v in value) else "x").join(str(v) for v in value))
        return clean(str(value))
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if type_ == "datetime64[us, UTC]":
        return instant(value)
    found = number(value)
    if found is None:
        return None
    if type_ == "Float64":
        try:
            return float(found)
        except OverflowError:
            return None
    return int(found) if found == int(found) and -(2**63) <= found < 2**63 else None
