"""An inference request: the settings that every llama engine shares, checked and with their defaults filled in.

Defaults are mlsys' (128 prompt tokens, 128 output tokens, 3 repetitions), so that a config written for it asks for the
same. What a point leaves open and the engine decides itself (threads, batch size, cache type) stays ``None`` here.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sidewinder.errors import ConfigError
from sidewinder.model import EMPTY, Device, FileCheck, Json, Point, RawResult, Task

DEFAULT_TOKENS: Final = 128
DEFAULT_REPETITIONS: Final = 3
DEFAULT_TIMEOUT_S: Final = 3600.0
CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_UNQUANTISED: Final = ("f32", "f16", "bf16")
_FLASH_ATTENTION: Final[Mapping[str, str]] = {
    **dict.fromkeys(("true", "1", "on", "yes"), "on"),
    **dict.fromkeys(("false", "0", "off", "no"), "off"),
    **dict.fromkeys(("auto", "-1"), "auto"),
}


@dataclass(frozen=True, slots=True)
class Request:
    """What a point asks of an engine; ``None`` means that the engine decides."""

    model_path: str
    prompt_tokens: int
    output_tokens: int
    depth_tokens: int  # tokens already in the KV cache when the clock starts (`context_tokens`)
    repetitions: int
    warmup: int | None
    threads: int | None
    batch_size: int | None
    flash_attention: str | None  # "on" | "off" | "auto"
    cache_type: str | None  # of K and V
    timeout_s: float
    env: Mapping[str, str]


def request_of(point: Point) -> Request:
    """The point's request. Raises ``ConfigError`` naming the key for what can never work."""
    if not point.model_path:
        raise ConfigError(f"backend `{point.backend}` needs a model with a path", key="model", value=point.model)
    # a model's own `batch_size` comes in `extra`, as in mlsys (M-15); the axis, where there is one, is what was asked
    batch_size = point.extra.get("batch_size") if point.batch_size is None else point.batch_size
    request = Request(
        model_path=point.model_path,
        prompt_tokens=_count("prompt_tokens", point.prompt_tokens, DEFAULT_TOKENS, least=0),
        output_tokens=_count("output_tokens", point.output_tokens, DEFAULT_TOKENS, least=0),
        depth_tokens=_count("context_tokens", point.context_tokens, 0, least=0),
        repetitions=_count("repetitions", point.repetitions, DEFAULT_REPETITIONS, least=1),
        warmup=None if point.warmup is None else _count("warmup", point.warmup, 0, least=0),
        threads=None if point.threads is None else _count("threads", point.threads, 1, least=1),
        batch_size=None if batch_size is None else _count("batch_size", batch_size, 1, least=1),
        flash_attention=_flash_attention(point.flash_attention),
        cache_type=point.kv_quantization,
        timeout_s=timeout_of(point.extra),
        env=environment("extra.env", point.extra.get("env")),
    )
    if request.prompt_tokens == 0 and request.output_tokens == 0:
        raise ConfigError("0 prompt tokens and 0 output tokens leave nothing to measure", key="prompt_tokens", value=0)
    if request.cache_type is not None:
        if request.cache_type not in CACHE_TYPES:
            known = ", ".join(CACHE_TYPES)
            raise ConfigError(f"must be one of {known}", key="kv_quantization", value=request.cache_type)
        if request.cache_type not in _UNQUANTISED and request.flash_attention == "off":
            # The engine would say "failed to create context", the same words as for "does not fit in memory".
            raise ConfigError(
                "a quantised V cache needs flash attention, which is off",
                key="kv_quantization",
                value=request.cache_type,
                hint="set flash_attention: true, or leave it out so that the engine turns it on",
            )
    return request


def check_mode(point: Point, modes: frozenset[str]) -> None:
    if point.mode not in modes:
        known = ", ".join(sorted(modes))
        raise ConfigError(f"backend `{point.backend}` measures {known}", key="mode", value=point.mode)


def task_for(point: Point, device: Device, request: Request, task: Task) -> Task:
    """``task`` with what all llama tasks share: environment, time-out, the model's check, preparation, sampling.

    The innermost declaration of a variable wins: device, the device's block of the backend, the point.
    """
    block = device.backends.get(point.backend, EMPTY)
    require = tuple(name for name in ("governor", "freq_khz") if getattr(point, name) is not None)
    return replace(
        task,
        env={**task.env, **device.env, **environment(f"{point.backend}.env", block.get("env")), **request.env},
        timeout_s=request.timeout_s,
        checks=(FileCheck(request.model_path, point.model_sha256, f"model {point.model}"),),
        prepare={**point.prepare, **{name: getattr(point, name) for name in require}} or EMPTY,
        require=require,
        sample_hz=point.sample_hz,
        sample_power=point.sample_power,
        notes={**task.notes, "dram_peak_GBs": device.dram_peak_GBs},
    )


def environment(key: str, declared: Json) -> dict[str, str]:
    if declared is None:
        return {}
    if not isinstance(declared, Mapping):
        raise ConfigError("must be a mapping of names to values", key=key, value=declared)
    for name, value in declared.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError("not a name of an environment variable", key=key, value=name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ConfigError("must be text or a number: quote it", key=f"{key}.{name}", value=value)
    return {name: str(value) for name, value in declared.items()}


def timeout_of(extra: Mapping[str, Json], key: str = "timeout_s", default: float = DEFAULT_TIMEOUT_S) -> float:
    value = extra.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError("must be a number of seconds above 0", key=f"extra.{key}", value=value)
    return float(value)


def bandwidth(
    decode_tps: float | None, weight_bytes: Json, dram_peak: Json
) -> tuple[dict[str, float], tuple[str, ...]]:
    """(metrics, warnings): what decoding at this speed reads from memory, against the declared peak where there is one.

    Every generated token reads every weight once. More than the declared peak is not clamped: then the declaration is
    wrong or the weights sit in a cache, and both are worth knowing.
    """
    if not decode_tps or not isinstance(weight_bytes, int) or weight_bytes <= 0:
        return {}, ()
    used = decode_tps * weight_bytes / 1e9
    if not isinstance(dram_peak, int | float) or dram_peak <= 0:
        return {"decode_bw_GBs": used}, ()
    percent = 100 * used / dram_peak
    metrics = {"decode_bw_GBs": used, "bw_utilization_pct": percent}
    if percent <= 100:
        return metrics, ()
    warning = (
        f"decode bandwidth {used:.1f} GB/s is {percent:.0f} % of the declared dram_peak_GBs {dram_peak:g}: "
        "the declared peak is wrong, or the weights stay in a cache"
    )
    return metrics, (warning,)


def exit_words(returncode: int | None, oom_kills: int | None = None) -> str:
    """How a process ended, in words: ``exit status 1``, ``killed by signal 11 (SIGSEGV)``."""
    if returncode is None:
        return "no exit status"
    if returncode == -signal.SIGKILL and oom_kills == 0:
        return "killed by signal 9 (SIGKILL), not for lack of memory (no OOM kill was counted)"
    if returncode < 0:
        return f"killed by signal {-returncode} ({_signal_name(-returncode)})"
    if returncode > 128 and _signal_name(returncode - 128):
        number = returncode - 128
        return f"exit status {returncode} (how a shell reports signal {number}, {_signal_name(number)})"
    return f"exit status {returncode}"


def last_words(raw: RawResult, noise: tuple[str, ...] = ()) -> str | None:
    """The last line of stderr that says something."""
    return last_line(raw.stderr.tail or raw.stderr.head, noise)


def last_line(text: bytes, noise: tuple[str, ...] = ()) -> str | None:
    lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
    lines = [line for line in lines if line and not line.startswith(noise)]
    return lines[-1][:400] if lines else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


def _count(key: str, value: Json, default: int, *, least: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"must be a whole number of at least {least}", key=key, value=value)
    return value


def _flash_attention(value: Json) -> str | None:
    if value is None:
        return None
    known = _FLASH_ATTENTION.get(str(value).lower())
    if known is None:
        raise ConfigError("must be true, false or auto", key="flash_attention", value=value)
    return known
