"""Bench rows: what llama-bench (and the embedded engine, which speaks the same) prints, one JSON object a line.

A run is a measurement only if all five hold, because the program ends with status 0 in cases where nothing was
measured (0 repetitions, a full stdout) and prints tidy rows for another request than ours (a repeated flag adds):

1. it ended with status 0;
2. there are exactly the rows that were asked for: one for prefill, one for decode;
3. each row has one sample per repetition;
4. each average and sample is a finite number above 0;
5. each row repeats the request: tokens, depth, threads, batch size, cache type, flash attention.

Nothing else on stdout is looked at: drivers print before the rows, a debugger may print after them.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard

from sidewinder.errors import ParseError
from sidewinder.model import Json, Measurement, Point, RawResult, Task

from .inference import Request, bandwidth, exit_words, last_words
from .json_lines import objects, seen

# Printed by every run whose CPU backends lie elsewhere than compiled in; says nothing about the run.
NOISE: Final = ("ggml_backend_load_best: failed to enumerate", "load_backend:", "warning: asserts enabled")
_METRIC: Final = {"prefill": "prefill_tps", "decode": "decode_tps"}


def measurement(
    point: Point, request: Request, task: Task, raw: RawResult, *, program: str, hints: Mapping[str, str]
) -> Measurement:
    """Rows to a measurement. Raises ``ParseError`` for a run that ended well with a row that cannot be read."""
    if raw.returncode != 0:
        rows, _ = objects(raw.stdout)
        return Measurement(
            ok=False,
            message=_why_it_failed(raw, program, len(rows), hints),
            workload=_workload(point, request, rows),
            backend=_backend(point, task, rows),
        )
    rows, broken = objects(raw.stdout)
    if broken is not None:
        raise ParseError(f"{program} ended well, but line {broken} of its output is no whole JSON object{seen(raw)}")
    workload, backend = _workload(point, request, rows), _backend(point, task, rows)
    message = _objection(request, rows, raw, program)
    if message is not None:
        return Measurement(ok=False, message=message, workload=workload, backend=backend)

    metrics: dict[str, float] = {}
    samples: dict[str, list[float]] = {}
    warnings: list[str] = []
    spreads = []
    for row in rows:
        kind = "prefill" if row["n_prompt"] else "decode"
        metrics[_METRIC[kind]] = row["avg_ts"]
        rates = [1e9 * (row["n_prompt"] or row["n_gen"]) / ns for ns in row["samples_ns"]]
        samples[_METRIC[kind]] = rates
        if len(rates) > 1:
            # From the samples: the program's own figure was seen as NaN and negative, and is 0 for one repetition.
            spreads.append(100 * statistics.stdev(rates) / statistics.fmean(rates))
            if not _is_finite(row.get("stddev_ts")) or row["stddev_ts"] < 0:
                told = json.dumps(row.get("stddev_ts"))
                warnings.append(f"{program} gave {told} as its deviation of {kind}; the repeats were used instead")
    if spreads:
        metrics["stdev_pct"] = max(spreads)
    if _is_finite(rows[0].get("load_ms")):  # the embedded engine alone tells it
        metrics["load_ms"] = rows[0]["load_ms"]
    extra, more = bandwidth(metrics.get("decode_tps"), workload.get("weight_bytes"), task.notes.get("dram_peak_GBs"))
    return Measurement(
        ok=True,
        metrics={**metrics, **extra},
        workload=workload,
        backend=backend,
        samples=samples,
        warnings=(*warnings, *more),
    )


def headline(metrics: Mapping[str, Json]) -> str:
    shown = [
        f"{word} {metrics[name]:.1f} t/s"
        for word, name in (("prefill", "prefill_tps"), ("decode", "decode_tps"))
        if name in metrics
    ]
    return ", ".join(shown)


# ---------------------------------------------------------------------------------------------------------------------


def _objection(request: Request, rows: Sequence[Mapping[str, Json]], raw: RawResult, program: str) -> str | None:
    """The first of the rules that the rows break, as a sentence; None: it is a measurement."""
    wanted = {}
    if request.prompt_tokens:
        wanted["prefill"] = (request.prompt_tokens, 0)
    if request.output_tokens:
        wanted["decode"] = (0, request.output_tokens)
    if len(rows) != len(wanted):
        return (
            f"{program} ended well but printed {len(rows)} result rows where {len(wanted)} were asked for "
            f"({', '.join(wanted)}){seen(raw)}"
        )
    for kind, (n_prompt, n_gen) in wanted.items():
        matching = [row for row in rows if (row.get("n_prompt"), row.get("n_gen")) == (n_prompt, n_gen)]
        if len(matching) != 1:
            got = ", ".join(f"({row.get('n_prompt')}, {row.get('n_gen')})" for row in rows)
            return f"{program} measured (n_prompt, n_gen) = {got}; asked for was one {kind} row ({n_prompt}, {n_gen})"
        objection = _objection_to_row(request, matching[0], kind)
        if objection is not None:
            return f"the {kind} row of {program} {objection}"
    return None


def _objection_to_row(request: Request, row: Mapping[str, Json], kind: str) -> str | None:
    samples = row.get("samples_ns")
    count = len(samples) if isinstance(samples, list) else 0
    if count != request.repetitions:
        return f"holds {count} samples where {request.repetitions} repetitions were asked for"
    assert isinstance(samples, list)
    if not _is_finite(row.get("avg_ts")) or row["avg_ts"] <= 0:
        return f"gives {json.dumps(row.get('avg_ts'))} as its average of tokens per second"
    if not all(_is_finite(ns) and ns > 0 for ns in samples):
        return "holds a sample that is no number of nanoseconds above 0"
    for name, wanted in _echo(request).items():
        if name == "n_depth" and wanted == 0 and name not in row:
            continue  # builds before the flag existed: depth 0 is all they can do
        if not _same(row.get(name), wanted):
            return f"was measured with {name} = {json.dumps(row.get(name))}, asked for was {json.dumps(wanted)}"
    return None


def _echo(request: Request) -> dict[str, Json]:
    """The fields of a row that must repeat the request. What was left to the engine is not checked."""
    echo: dict[str, Json] = {"n_depth": request.depth_tokens}
    if request.threads is not None:
        echo["n_threads"] = request.threads
    if request.batch_size is not None:
        echo["n_batch"] = request.batch_size
    if request.cache_type is not None:
        echo.update(type_k=request.cache_type, type_v=request.cache_type)
    if request.flash_attention is not None:
        echo["flash_attn"] = {"on": 1, "off": 0, "auto": -1}[request.flash_attention]
    return echo


def _same(got: Json, wanted: Json) -> bool:
    # Older builds print flash_attn as true and false, newer ones as 1, 0 and -1: int() makes them one.
    return bool(got == wanted) or (isinstance(got, bool) and int(got) == wanted)


def _is_finite(value: Json) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _workload(point: Point, request: Request, rows: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    row = rows[0] if rows else {}
    params, described = row.get("model_n_params"), str(row.get("model_type") or "").split()
    found = {
        "model": point.model,
        "model_path": request.model_path,
        "model_bytes": row.get("model_bytes"),
        "weight_bytes": row.get("model_size"),
        "params": params / 1e9 if _is_finite(params) else None,
        "quantization": point.quantization,
        "architecture": described[0] if described else None,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "context_tokens": request.depth_tokens or None,
        "batch_size": row.get("n_batch"),
        "threads": row.get("n_threads"),
        "kv_quantization": row.get("type_k"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _backend(point: Point, task: Task, rows: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    row = rows[0] if rows else {}
    found = {
        "name": point.backend,
        "version": task.notes.get("version"),
        "build": " ".join(str(row[key]) for key in ("build_number", "build_commit") if row.get(key)) or None,
        "binary": task.notes.get("binary"),
        "execution_provider": row.get("backends"),
        "library_versions": row.get("library_versions"),
    }
    return {key: value for key, value in found.items() if value is not None}


def _why_it_failed(raw: RawResult, program: str, rows: int, hints: Mapping[str, str]) -> str:
    words = last_words(raw, NOISE)
    message = f"{program}: {exit_words(raw.returncode, raw.oom_kills)}, " + (words if words else "nothing on stderr")
    if rows:
        message += f" (after printing {rows} whole result rows, which do not count: it did not end well)"
    for text, hint in hints.items():
        if words and text in words:
            return f"{message}\n  {hint}"
    return message
