"""The workload of a soak: works for a while, ends as its point says, and leaves a trace of when it really ran.

``work.py FOLDER NAME KIND SECONDS VALUE``. Each execution has a file of its own in FOLDER, so that nothing but its own
death can end its trace: what it is (run id and attempt are in the name of the folder it was started in), then when it
was last alive, then ``ended``. The clock is the kernel's monotonic one, which all hosts of a lab share. In a pod that
was told its node and its uid by the cluster these stand in it too.

``KIND``: ``ok``; ``noise`` (ok, after much that is no text); ``leaver`` (ok, and leaves a process behind that does not
want to go); ``exit``, ``kill``, ``garbage`` (three results that are failures).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

TICK_S = 0.02


def trace(folder: str, told: dict[str, object], until_ns: int | None) -> None:
    start_ns = int(str(told["start_ns"]))
    fd = os.open(f"{folder}/{start_ns}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    head = json.dumps(told).encode() + b"\n"
    while True:
        now_ns = time.monotonic_ns()
        # one page from the first byte on: a disk that fills up meanwhile does not end a run that has begun
        os.pwrite(fd, head + b"%20d\n" % now_ns, 0)
        if until_ns is not None and now_ns >= until_ns:
            break
        time.sleep(TICK_S)
    os.pwrite(fd, b"%20d\nended\n" % time.monotonic_ns(), len(head))
    os.close(fd)


def stay(folder: str, told: dict[str, object]) -> None:
    """In the background, in a session of its own, deaf to polite requests."""
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        trace(folder, {**told, "left": True, "start_ns": time.monotonic_ns()}, None)


def main() -> None:
    folder, name, kind, seconds, value = sys.argv[1:6]
    os.makedirs(folder, exist_ok=True)
    start_ns = time.monotonic_ns()
    run_id, _, attempt = os.path.basename(os.path.dirname(os.getcwd())).rpartition(".")
    told: dict[str, object] = {"run": name, "start_ns": start_ns, "run_id": run_id, "n": int(attempt)}
    told.update(
        {key: os.environ[name] for key, name in (("node", "NODE_NAME"), ("pod", "POD_UID")) if name in os.environ}
    )
    if kind == "leaver":
        stay(folder, told)
    trace(folder, told, start_ns + int(float(seconds) * 1e9))
    if kind == "garbage":
        print('{"value": 1', flush=True)
        return
    if kind == "noise":
        os.write(1, bytes(range(128, 256)) * 1000 + b"\n")
    print(json.dumps({"value": int(value), "start_ns": start_ns}), flush=True)
    if kind == "exit":
        sys.exit(3)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
