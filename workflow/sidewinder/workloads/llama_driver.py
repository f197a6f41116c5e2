"""Driver: the script that measures llama.cpp inside a Python process, with llama-bench's loops and its row names.

It is sent over stdin to the interpreter that the device names (`python -I - MODEL REQUEST`), so nothing of Sidewinder
has to be installed there: standard library and cyllama only. REQUEST is JSON; one row a line goes to stdout.

Same as llama-bench: random token ids; prefill decodes the prompt in chunks of ``n_batch`` and waits once; decode feeds
one token at a time and waits after each; the KV cache is cleared before each repetition and filled to ``n_depth``
outside the clock; a warm-up comes first; the clock is monotonic and runs around the loop only, so loading, tokenising
and sampling are not in it. Batches are built before the clock starts: building them is Python's work, not the engine's.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512


def main(argv: list[str]) -> int:
    path, request = argv[1], json.loads(argv[2])
    path = os.path.expanduser(path)
    try:
        from cyllama.llama import llama_cpp as engine
    except ImportError as error:
        return fail(f"the engine cannot be loaded in {sys.executable}: {error}")

    said: list[str] = []  # what the engine logs: shown only where something failed
    engine.set_log_callback(lambda level, text: said.append(text))
    engine.llama_backend_init()
    params = engine.LlamaModelParams()
    params.n_gpu_layers = 0
    started_ns = time.perf_counter_ns()
    try:
        model = engine.LlamaModel(path, params)
    except Exception as error:  # noqa: BLE001  whatever it raises: its own words, status 1
        # its first sentence: what follows are guesses, and would push the engine's own last words out of sight
        return fail(f"failed to load model '{path}': {str(error).split('. ')[0]}", said)
    load_ms = (time.perf_counter_ns() - started_ns) / 1e6

    tests = [("n_prompt", request["n_prompt"]), ("n_gen", request["n_gen"])]
    for kind, count in tests:
        if count == 0:
            continue
        try:
            row = measure(engine, model, kind, count, request)
        except Exception as error:  # noqa: BLE001
            # its first sentence: what follows is a list of things to try
            return fail(f"{kind} of {count} tokens: {str(error).split('. ')[0]}", said)
        row.update(model_filename=path, model_bytes=os.path.getsize(path), load_ms=load_ms)
        print(json.dumps(row), flush=True)
    return 0


def measure(engine: Any, model: Any, kind: str, count: int, request: dict[str, Any]) -> dict[str, Any]:
    """One row: ``count`` tokens of prefill (``n_prompt``) or of decode (``n_gen``), as often as the request says."""
    depth = request["n_depth"]
    threads = request["n_threads"] or available_cores()
    batch_size = request["n_batch"] or DEFAULT_BATCH
    cache_type = request["cache_type"] or "f16"
    flash = FLASH_ATTENTION[request["flash_attn"] or "auto"]

    params = engine.LlamaContextParams()
    params.n_ctx = count + depth
    params.n_batch = batch_size
    params.n_ubatch = min(DEFAULT_UBATCH, batch_size)
    params.n_threads = params.n_threads_batch = threads
    params.type_k = params.type_v = CACHE_TYPES[cache_type]
    params.flash_attn_type = flash
    params.no_perf = True
    context = engine.LlamaContext(model, params)
    context.set_n_threads(threads, threads)
    pool = engine.GgmlThreadPool(engine.GgmlThreadPoolParams(threads))
    context.attach_threadpool(pool, pool)

    rng = random.Random(1)
    vocab = model.get_vocab()
    bos = vocab.token_bos() if vocab.get_add_bos() else None

    def batches(start: int, length: int, size: int) -> list[Any]:
        """Random tokens for the positions from ``start``, ``size`` to a batch."""
        ids = [rng.randrange(vocab.n_vocab) for _ in range(length)]
        if start == 0 and bos is not None:
            ids[0] = bos
        return [engine.llama_batch_get_one(ids[at : at + size], start + at) for at in range(0, length, size)]

    def feed_ns(work: list[Any], wait_each: bool) -> int:
        start_ns = time.perf_counter_ns()
        for batch in work:
            context.decode(batch)
            if wait_each:
                context.synchronize()
        context.synchronize()
        return time.perf_counter_ns() - start_ns

    wait_each = kind == "n_gen"
    size = 1 if wait_each else batch_size
    for _ in range(request["warmup"]):
        context.kv_cache_clear(False)
        feed_ns(batches(0, 1 if wait_each else count, size), wait_each)
    test_time = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    samples_ns = []
    for _ in range(request["repetitions"]):
        context.kv_cache_clear(False)
        if depth:
            feed_ns(batches(0, depth, batch_size), False)
        samples_ns.append(feed_ns(batches(depth, count, size), wait_each))
    context.detach_threadpool()
    context.close()

    samples_ts = [1e9 * count / ns for ns in samples_ns]
    several = len(samples_ns) > 1
    return {
        "build_commit": engine.ggml_commit(),
        "build_number": "cyllama " + version("cyllama"),
        "library_versions": {"cyllama": version("cyllama"), "ggml": engine.ggml_version()},
        "cpu_info": ", ".join(device["description"] for device in engine.ggml_backend_dev_info()),
        "backends": ",".join(engine.ggml_backend_reg_names()),
        "model_type": model.desc,
        "model_size": model.size,
        "model_n_params": model.n_params,
        "n_batch": batch_size,
        "n_ubatch": params.n_ubatch,
        "n_threads": threads,
        "type_k": cache_type,
        "type_v": cache_type,
        "n_gpu_layers": 0,
        "flash_attn": flash,
        "n_prompt": count if kind == "n_prompt" else 0,
        "n_gen": count if kind == "n_gen" else 0,
        "n_depth": depth,
        "warmup": request["warmup"],
        "test_time": test_time,
        "avg_ns": round(statistics.mean(samples_ns)),
        "stddev_ns": round(statistics.stdev(samples_ns)) if several else None,
        "avg_ts": statistics.mean(samples_ts),
        "stddev_ts": statistics.stdev(samples_ts) if several else None,
        "samples_ns": samples_ns,
        "samples_ts": samples_ts,
    }


def available_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call on macOS
        return os.cpu_count() or 1


def fail(message: str, said: Iterable[str] = ()) -> int:
    """The engine's own last lines, then our sentence, which repeats the one that is mostly the reason: the last that
    says "error" (what loads a model ends with a line that says no more than that it failed), else the very last."""
    lines = [line for line in "".join(said).splitlines() if line.strip(" .")]
    for line in lines[-20:]:
        print(line, file=sys.stderr)
    if lines:
        telling = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1])
        message = f"{message} (the engine said: {telling})"
    print(f"llama: error: {message}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
