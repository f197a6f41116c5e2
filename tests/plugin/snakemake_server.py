"""A server that starts Snakemake for tests: imports it once, then forks for each start (an import costs 1.4 CPU s).

Reads one JSON line a start from stdin ({args, cwd, env, out}), answers {"pid"} at once and {"pid", "rc", "cpu_s",
"rss_bytes"} when it has ended. Each start is a process of its own with nothing shared, as from a shell.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import tokenize

import altair  # noqa: F401
import jinja2  # noqa: F401
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import smart_open  # noqa: F401 -- imported by Snakemake when it reads the first file
import snakemake.cli
import vl_convert  # noqa: F401

from sidewinder.report import page  # noqa: F401

# what each start would do first
snakemake.cli.get_argument_parser()  # imports the plugins
list(tokenize.generate_tokens(iter(["a = 1\n", ""]).__next__))


def child(request: dict[str, object]) -> None:
    os.setpgid(0, 0)
    os.chdir(str(request["cwd"]))
    os.environ.update(request["env"])  # type: ignore[arg-type]
    out = os.open(str(request["out"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.argv = ["snakemake", *request["args"]]  # type: ignore[misc]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(snakemake.cli.main())


def answer(message: dict[str, object]) -> None:
    # Not by sys.stdout: a child forked while another thread holds that buffer's lock inherits it locked, and would hang
    # for ever when it flushes at its end. One write of a short line is whole.
    os.write(1, json.dumps(message).encode() + b"\n")


def wait(pid: int) -> None:
    _, status, usage = os.wait4(pid, 0)
    answer(
        {
            "pid": pid,
            "rc": os.waitstatus_to_exitcode(status),
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "rss_bytes": usage.ru_maxrss * 1024,
        }
    )


def main() -> None:
    for line in sys.stdin:
        if not line.strip():
            continue
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(request)
        answer({"pid": pid})
        threading.Thread(target=wait, args=(pid,), daemon=True).start()


if __name__ == "__main__":
    main()
