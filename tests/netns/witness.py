"""The workload of a lab host: works for a while, or until it is let go, and leaves a trace of when it really ran.

``witness.py FOLDER RUN SECONDS|hold``. Each execution has a file of its own, so that nothing but its own death can end
its trace: ``{"run", "pid", "start_ns"}``, then when it was last alive, then ``ended``. The clock is the kernel's
monotonic one, which all hosts of a lab share. Prints the start, which tells whose output a record holds.
"""

from __future__ import annotations

import json
import os
import sys
import time

TICK_S = 0.02


def main() -> None:
    folder, run, how_long = sys.argv[1:4]
    os.makedirs(folder, exist_ok=True)
    start_ns = time.monotonic_ns()
    trace = os.open(f"{folder}/{start_ns}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    told = json.dumps({"run": run, "pid": os.getpid(), "start_ns": start_ns}).encode() + b"\n"
    os.write(trace, told)
    end_ns = None if how_long == "hold" else start_ns + int(float(how_long) * 1e9)
    while True:
        now_ns = time.monotonic_ns()
        os.pwrite(trace, b"%20d\n" % now_ns, len(told))
        if end_ns is None:
            if os.path.exists(f"{folder}/go") or os.path.exists(f"{folder}/go-{run}"):
                break
        elif now_ns >= end_ns:
            break
        time.sleep(TICK_S)
    print(json.dumps({"start_ns": start_ns, "value": 1}), flush=True)
    os.pwrite(trace, b"%20d\nended\n" % time.monotonic_ns(), len(told))


if __name__ == "__main__":
    main()
