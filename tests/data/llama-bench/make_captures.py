"""Makes the captures in this folder anew, with a real llama-bench: what it really prints, also when it goes wrong.

    sh scripts/get_llama_bench.sh /opt/llama-bench
    python tests/data/llama-bench/make_captures.py /opt/llama-bench/bin/llama-bench /srv/models/tiny.gguf

The model is the one of ``tests/workloads/helpers_gguf.py``. ``captures.json`` says what was run and how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
GOOD = ["-p", "64", "-n", "16", "-t", "1", "-r", "3", "-o", "jsonl"]
DRIVER_LINES = "ggml_cuda_init: found 1 CUDA devices (Total VRAM: 24126 MiB):\\n  Device 0: some GPU, VMM: yes\\n"


def main() -> None:
    bench, model = sys.argv[1], sys.argv[2]
    folder = Path(model).parent
    damaged = {
        "truncated.gguf": Path(model).read_bytes()[:8_000_000],
        "page.gguf": b"<html><body>404 Not Found</body></html>\n",
        "empty.gguf": b"",
    }
    for name, data in damaged.items():
        (folder / name).write_bytes(data)

    def run(model_path: str | Path, *args: str) -> list[str]:
        return [bench, "-m", str(model_path), *args]

    def shell(script: str, *args: str) -> list[str]:
        return ["bash", "-c", script, "bash", *run(model, *args)]

    cases = {
        "good": run(model, *GOOD),
        "good-depth-cache-batch": run(
            model, *GOOD, "-d", "32", "-b", "128", "-fa", "1", "-ctk", "q8_0", "-ctv", "q8_0"
        ),
        "good-one-repetition": run(model, "-p", "64", "-n", "16", "-t", "1", "-r", "1", "-o", "jsonl"),
        "decode-only": run(model, "-p", "0", "-n", "16", "-t", "1", "-r", "3", "-o", "jsonl"),
        "noise-before-jsonl": shell(f'printf "{DRIVER_LINES}"; exec "$@"', *GOOD),
        "noise-before-json-array": shell(f'printf "{DRIVER_LINES}"; exec "$@"', *GOOD[:-1], "json"),
        "cut-jsonl": shell('"$@" | head -c 1900; exit 0', *GOOD),
        "second-model-missing": run(model, "-m", str(folder / "absent.gguf"), *GOOD[:-1], "json"),
        "repeated-flag": run(model, *GOOD, "-t", "1,2"),
        "repetitions-0": run(model, "-p", "64", "-n", "16", "-t", "1", "-r", "0", "-o", "jsonl"),
        "stdout-full": shell('"$@" > /dev/full', *GOOD),
        "unknown-flag": run(model, *GOOD, "--bogus"),
        "missing-model": run(folder / "absent.gguf", *GOOD),
        "truncated-model": run(folder / "truncated.gguf", *GOOD),
        "html-as-model": run(folder / "page.gguf", *GOOD),
        "empty-model": run(folder / "empty.gguf", *GOOD),
        "cache-does-not-fit": run(model, "-p", "100000000", "-n", "16", "-t", "1", "-r", "3", "-o", "jsonl"),
        "quantised-v-without-flash-attention": run(model, *GOOD, "-ctk", "q8_0", "-ctv", "q8_0", "-fa", "0"),
        "abort": run(model, "-p", "64", "-n", "16", "-t", "0", "-r", "3", "-o", "jsonl"),
    }
    captures = {name: capture(name, argv) for name, argv in cases.items()}
    long_run = run(model, "-p", "64", "-n", "16", "-t", "1", "-r", "100000", "-o", "jsonl")
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV):
        name = f"killed-{number.name.lower()}"
        captures[name] = capture(name, long_run, end_with=number)
    (HERE / "captures.json").write_text(json.dumps(captures, indent=1) + "\n")
    for name in damaged:
        (folder / name).unlink()


def capture(name: str, argv: list[str], end_with: signal.Signals | None = None) -> dict[str, object]:
    environment = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    with (HERE / f"{name}.stdout").open("wb") as out, (HERE / f"{name}.stderr").open("wb") as err:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment)
        if end_with is not None:
            time.sleep(1)
            process.send_signal(end_with)
        returncode = process.wait()
    return {"argv": argv, "returncode": returncode}


if __name__ == "__main__":
    main()
