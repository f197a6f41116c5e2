"""The llama-bench run: a request as command line of the real llama-bench, one point per process.

Nothing is asked for in another amount than the point says: mlsys raises ``prompt_tokens`` to 32 when it decodes, we do
not, because the record would name another experiment than the one that ran.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from sidewinder.errors import ConfigError
from sidewinder.model import Json, Task

from .inference import Request

# Flags that decide what is measured or how it is printed: a point says them by its axes, never by bench_args.
_RESERVED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("-m", "--model", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file"), "the point's model"),
    **dict.fromkeys(("-o", "--output"), "us: rows are read as jsonl"),
    **dict.fromkeys(("-p", "--n-prompt"), "prompt_tokens"),
    **dict.fromkeys(("-n", "--n-gen"), "output_tokens"),
    **dict.fromkeys(("-r", "--repetitions"), "repetitions"),
    "-pg": "prompt_tokens and output_tokens, one row each",
}
_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    "threads": ("-t", "--threads"),
    "context_tokens": ("-d", "--n-depth"),
    "batch_size": ("-b", "--batch-size"),
    "flash_attention": ("-fa", "--flash-attn"),
    "kv_quantization": ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"),
    "warmup": ("--no-warmup",),
}
_SAYS_ON_OFF: Final = {"on": "1", "off": "0", "auto": "auto"}  # 1 and 0 are understood by old builds and new ones
_RANGE: Final = re.compile(r"\d+-\d+([+*]\d+)?")

HINTS: Final = {
    "failed to load model": "The file is there (it was checked before the run), but llama-bench does not say why: it "
    "may be damaged, cut short, no GGUF, or newer than this build. `extra: {bench_args: [-v]}` makes it tell; a "
    "declared sha256 tells a damaged file from an unsuitable one.",
    "failed to create context": "It did not fit in memory, or this cache type needs flash attention: "
    "`extra: {bench_args: [-v]}` makes it tell.",
    "invalid parameter for argument": "This build of llama-bench knows no such flag or value; flags come and go "
    "between versions (backend.version in the record).",
}


def bench_task(binary: str, request: Request, extra: Mapping[str, Json]) -> Task:
    argv = [binary, "-m", request.model_path, "-o", "jsonl", "-r", str(request.repetitions)]
    argv += ["-p", str(request.prompt_tokens), "-n", str(request.output_tokens)]
    if request.threads is not None:
        argv += ["-t", str(request.threads)]
    if request.depth_tokens:
        argv += ["-d", str(request.depth_tokens)]
    if request.batch_size is not None:
        argv += ["-b", str(request.batch_size)]
    if request.flash_attention is not None:
        argv += ["-fa", _SAYS_ON_OFF[request.flash_attention]]
    if request.cache_type is not None:
        argv += ["-ctk", request.cache_type, "-ctv", request.cache_type]
    if request.warmup == 0:
        argv += ["--no-warmup"]
    argv += bench_args(request, extra)
    # A failed assertion otherwise starts a debugger where there is one, which prints on stdout.
    return Task(argv=tuple(argv), env={"GGML_NO_BACKTRACE": "1"})


def check(request: Request, extra: Mapping[str, Json]) -> None:
    if request.warmup is not None and request.warmup > 1:
        raise ConfigError("llama-bench warms up once (1) or not at all (0)", key="warmup", value=request.warmup)
    bench_args(request, extra)


def bench_args(request: Request, extra: Mapping[str, Json]) -> list[str]:
    """``extra.bench_args``, checked: llama-bench adds repeated flags and lists up instead of letting the last one win,
    so any of them would multiply the points of this process."""
    args = argument_list("bench_args", extra)
    asked = {
        "threads": request.threads is not None,
        "context_tokens": request.depth_tokens > 0,
        "batch_size": request.batch_size is not None,
        "flash_attention": request.flash_attention is not None,
        "kv_quantization": request.cache_type is not None,
        "warmup": request.warmup == 0,
    }
    ours = dict(_RESERVED)
    for axis, flags in _OPTIONAL.items():
        if asked[axis]:
            ours.update(dict.fromkeys(flags, axis))
    before: set[str] = set()
    for arg in args:
        if arg.startswith("-") and not _is_number(arg):
            if arg in ours:
                raise ConfigError(f"{arg} is set by {ours[arg]}", key="extra.bench_args", value=arg)
            if arg in before:
                raise ConfigError(f"{arg} twice would measure twice", key="extra.bench_args", value=arg)
            before.add(arg)
        elif "," in arg or _RANGE.fullmatch(arg):
            raise ConfigError(
                "a list or a range would measure several points in one process",
                key="extra.bench_args",
                value=arg,
                hint="make it an axis of the matrix, or one block per value",
            )
    return args


def argument_list(key: str, extra: Mapping[str, Json]) -> list[str]:
    """``extra[key]`` as arguments: a list, or one string that is split as a shell would (nothing is expanded)."""
    declared = extra.get(key)
    if declared is None:
        return []
    if isinstance(declared, str):
        try:
            return shlex.split(declared)
        except ValueError as error:
            raise ConfigError(f"cannot be split into arguments: {error}", key=f"extra.{key}", value=declared) from None
    if isinstance(declared, list | tuple) and all(
        isinstance(arg, str | int | float) and not isinstance(arg, bool) for arg in declared
    ):
        return [str(arg) for arg in declared]
    raise ConfigError("must be a list of arguments or one string", key=f"extra.{key}", value=declared)


def _is_number(arg: str) -> bool:
    try:
        float(arg)
    except ValueError:
        return False
    return True
