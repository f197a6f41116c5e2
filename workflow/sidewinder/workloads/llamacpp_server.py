"""The llama-server run: requests to a real llama-server on the device, for latency as a user of it would feel it.

Time to first token and end to end are medians over the repetitions, all of which are kept. Sampling and HTTP are in
them, so ``decode_tps`` here is lower than llama-bench's: another metric, not another result.
"""

from __future__ import annotations

import functools
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sidewinder.errors import ConfigError, ParseError
from sidewinder.model import Json, Measurement, Point, RawResult, Task

from .inference import Request, bandwidth, exit_words, last_words, timeout_of
from .json_lines import objects, seen
from .llamacpp_bench import argument_list

STARTUP_TIMEOUT_S: Final = 600.0
IMPLIED_PREFILL_TOKENS: Final = 64  # below it, the fixed cost of a request hides the speed of prefill
_LEAST_CONTEXT: Final = 512
_SPARE_TOKENS: Final = 64
_SHUTDOWN_S: Final = 10.0  # more than the driver needs to end its server when it is told to stop
_SET_BY_US: Final = {
    **dict.fromkeys(("-m", "--model"), "the point's model"),
    **dict.fromkeys(("--host", "-np", "--parallel"), "us: one slot on this machine's loopback"),
    "--port": "extra.port",
    **dict.fromkeys(("-c", "--ctx-size"), "the token counts and context_tokens"),
    **dict.fromkeys(("-t", "--threads"), "threads"),
    **dict.fromkeys(("-b", "--batch-size"), "batch_size"),
    **dict.fromkeys(("-fa", "--flash-attn"), "flash_attention"),
    **dict.fromkeys(("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"), "kv_quantization"),
}


def server_task(python: str, binary: str, request: Request, extra: Mapping[str, Json]) -> Task:
    context = request.prompt_tokens + request.output_tokens + _SPARE_TOKENS
    args = ["-c", str(max(_LEAST_CONTEXT, context, request.depth_tokens)), "-np", "1"]
    if request.threads is not None:
        args += ["-t", str(request.threads)]
    if request.batch_size is not None:
        args += ["-b", str(request.batch_size)]
    if request.flash_attention is not None:
        args += ["-fa", request.flash_attention]
    if request.cache_type is not None:
        args += ["-ctk", request.cache_type, "-ctv", request.cache_type]
    if request.warmup == 0:
        args += ["--no-warmup"]
    driver_request = {
        "args": args + _server_args(extra),
        "port": _port(extra),
        "startup_timeout_s": timeout_of(extra, "startup_timeout_s", STARTUP_TIMEOUT_S),
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "warmup": request.warmup or 0,
        "repetitions": request.repetitions,
    }
    return Task(
        argv=(python, "-I", "-", binary, request.model_path, json.dumps(driver_request)),
        env={"GGML_NO_BACKTRACE": "1"},
        stdin=driver_source(),
        grace_s=_SHUTDOWN_S,
    )


def check(request: Request, extra: Mapping[str, Json]) -> None:
    if request.prompt_tokens < 1:
        raise ConfigError(
            "latency needs a prompt of at least 1 token", key="prompt_tokens", value=request.prompt_tokens
        )
    if request.output_tokens < 1:
        raise ConfigError("latency needs at least 1 token to wait for", key="output_tokens", value=0)
    timeout_of(extra, "startup_timeout_s")
    _port(extra)
    _server_args(extra)


def measurement(point: Point, request: Request, task: Task, raw: RawResult) -> Measurement:
    """The driver's lines to a measurement, by the same rules as bench rows: ended well, everything there, one request
    per repetition, numbers above 0, and each request as large as asked for and not answered from a cache."""
    lines, broken = objects(raw.stdout)
    server = next((line for line in lines if line.get("kind") == "server"), {})
    requests = [line for line in lines if line.get("kind") == "request"]
    workload, backend = _workload(point, request, server), _backend(point, task)
    if raw.returncode != 0:
        words = last_words(raw)
        message = f"{exit_words(raw.returncode, raw.oom_kills)}, " + (words if words else "nothing on stderr")
        if requests:
            message += f" (after {len(requests)} of {request.repetitions} requests, which do not count alone)"
        return Measurement(ok=False, message=message, workload=workload, backend=backend)
    if broken is not None:
        raise ParseError(f"the driver ended well, but line {broken} of its output is no whole JSON object{seen(raw)}")
    objection = _objection(request, lines, requests, raw)
    if objection is not None:
        return Measurement(ok=False, message=objection, workload=workload, backend=backend)

    samples: dict[str, list[float]] = {
        "ttft_ms": [one["ttft_ms"] for one in requests],
        "e2e_latency_ms": [one["e2e_ms"] for one in requests],
    }
    if request.output_tokens > 1:
        samples["decode_tps"] = [
            1e3 * (one["output_tokens"] - 1) / (one["e2e_ms"] - one["ttft_ms"]) for one in requests
        ]
    if request.prompt_tokens >= IMPLIED_PREFILL_TOKENS:
        samples["prefill_tps"] = [1e3 * one["prompt_tokens"] / one["ttft_ms"] for one in requests]
    metrics = {name: statistics.median(values) for name, values in samples.items()}
    metrics["load_ms"] = server["load_ms"]
    if len(requests) > 1:
        metrics["ttft_spread_pct"] = 100 * (max(samples["ttft_ms"]) - min(samples["ttft_ms"])) / metrics["ttft_ms"]
    extra, warnings = bandwidth(
        metrics.get("decode_tps"), workload.get("weight_bytes"), task.notes.get("dram_peak_GBs")
    )
    return Measurement(
        ok=True,
        metrics={**metrics, **extra},
        workload=workload,
        backend=backend,
        samples=samples,
        warnings=warnings,
    )


@functools.cache
def driver_source() -> bytes:
    return (Path(__file__).parent / "server_driver.py").read_bytes()


def _objection(
    request: Request, lines: Sequence[Mapping[str, Json]], requests: Sequence[Mapping[str, Json]], raw: RawResult
) -> str | None:
    kinds = [line.get("kind") for line in lines]
    if kinds.count("server") != 1 or kinds[-1:] != ["end"]:
        return f"the driver ended well but told no whole story of its server{seen(raw)}"
    if len(requests) != request.repetitions:
        return f"{len(requests)} requests were measured where {request.repetitions} were asked for"
    for number, one in enumerate(requests, 1):
        ttft_ms, e2e_ms = one.get("ttft_ms"), one.get("e2e_ms")
        if not isinstance(ttft_ms, int | float) or not isinstance(e2e_ms, int | float) or not 0 < ttft_ms <= e2e_ms:
            return f"request {number}: first token after {ttft_ms} ms, end after {e2e_ms} ms: no such request"
        for name, wanted in (("prompt_tokens", request.prompt_tokens), ("output_tokens", request.output_tokens)):
            if one.get(name) != wanted:
                return f"request {number}: the server counted {one.get(name)} {name}, asked for were {wanted}"
        if request.output_tokens > 1 and ttft_ms == e2e_ms:
            return f"request {number}: its {request.output_tokens} tokens came all at once, not as a stream"
        cached = (one.get("timings") or {}).get("cache_n") or 0
        if cached:
            return f"request {number}: {cached} of its prompt tokens came from the server's cache"
    return None


def _workload(point: Point, request: Request, server: Mapping[str, Json]) -> dict[str, Json]:
    model = server.get("model") or {}
    found = {
        "model": point.model,
        "model_path": request.model_path,
        "weight_bytes": model.get("size"),
        "params": model["n_params"] / 1e9 if isinstance(model.get("n_params"), int) else None,
        "quantization": point.quantization,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "context_tokens": request.depth_tokens or None,
        "batch_size": request.batch_size,
    }
    return {key: value for key, value in found.items() if value is not None}


def _backend(point: Point, task: Task) -> dict[str, Json]:
    found = {"name": point.backend, "version": task.notes.get("version"), "binary": task.notes.get("binary")}
    return {key: value for key, value in found.items() if value is not None}


def _port(extra: Mapping[str, Json]) -> int | None:
    port = extra.get("port")
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535):
        raise ConfigError("must be a port from 1 to 65535; left out, a free one is taken", key="extra.port", value=port)
    return port


def _server_args(extra: Mapping[str, Json]) -> list[str]:
    args = argument_list("server_args", extra)
    for arg in args:
        if arg in _SET_BY_US:
            raise ConfigError(f"{arg} is set by {_SET_BY_US[arg]}", key="extra.server_args", value=arg)
    return args
