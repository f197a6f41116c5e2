"""An interpreter whose clocks a test can set: the real agent runs in it, and takes its stamps from them.

The clocks of the machine that runs the tests must not be set, and a time namespace has an offset for good. So the seam
is Python's ``time`` module in the agent's processes: what a run writes into ``wall`` or ``slept`` (seconds) is from
then on added to what they read. Everything else is the real thing, the way of the stamps into the record included.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SCRIPT = """#!{python} -IS
import sys, time

def seconds(name):
    try:
        with open({folder!r} + "/" + name) as file:
            return float(file.read() or 0)
    except FileNotFoundError:
        return 0.0

wall_ns, gettime, gettime_ns = time.time_ns, time.clock_gettime, time.clock_gettime_ns
time.time_ns = lambda: wall_ns() + int((seconds("wall") + seconds("slept")) * 1e9)
time.clock_gettime = lambda clock: gettime(clock) + (seconds("slept") if clock == time.CLOCK_BOOTTIME else 0.0)
time.clock_gettime_ns = lambda clock: gettime_ns(clock) + (
    int(seconds("slept") * 1e9) if clock == time.CLOCK_BOOTTIME else 0
)
exec(sys.argv[-1], {{"__name__": "__main__"}})
"""


_UNDER_FAKETIME = """#!/bin/sh
export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={folder}/faketime FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
exec {python} "$@"
"""


def under_faketime(folder: Path) -> str | None:
    """An interpreter whose wall clock libfaketime sets, by what stands in ``faketime``; None: that is not installed."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faketime").write_text("+0\n")
    script = folder / "python-faketime"
    script.write_text(_UNDER_FAKETIME.format(library=library, python=sys.executable, folder=str(folder)))
    script.chmod(0o755)
    return str(script)


def interpreter(folder: Path) -> str:
    """Its path; ``folder`` is where ``wall`` and ``slept`` are looked for."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "python"
    script.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
    script.chmod(0o755)
    return str(script)
