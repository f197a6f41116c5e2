"""`make bench`: every benchmark of this folder, one after the other; one line each: ``name value unit goal ok|short``.

A figure is a ratio within one run or CPU seconds, because machines are noisy. Exits 1 if a line is short or a
benchmark broke. ``python -m tests.bench agent core`` runs some of them.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent


def yardstick() -> str:
    """How fast this machine is now: neighbours on the same real core make even CPU seconds longer, up to twofold."""
    taken = []
    for _ in range(5):
        began, table = time.process_time(), {}
        for number in range(300_000):
            table[number & 1023] = (number, len(table))
        taken.append(time.process_time() - began)
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"a loop of 300 000 steps takes {1000 * min(taken):.0f} to {1000 * max(taken):.0f} ms of CPU{load}"


def main(names: list[str]) -> int:
    known = {one.stem.removeprefix("bench_"): one for one in sorted(HERE.glob("bench_*.py"))}
    if unknown := [name for name in names if name not in known]:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    scripts = [one for name, one in known.items() if not names or name in names]
    short, broken = [], []
    for script in scripts:
        print(f"# {script.stem}: {yardstick()}", flush=True)
        with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            before = len(short)
            for line in run.stdout:
                print(line, end="", flush=True)
                if line.split()[-1:] == ["short"]:
                    short.append(line.split()[0])
        # 1 is also how Python ends after an exception
        if run.returncode not in (0, 1) or (run.returncode == 1 and len(short) == before):
            broken.append(f"{script.name} ended with {run.returncode}")
    for text in broken:
        print(text, file=sys.stderr)
    print(f"{len(scripts)} benchmarks, {len(short)} figures short{': ' + ', '.join(short) if short else ''}")
    return 1 if short or broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
