"""`make bench`: every benchmark of this folder, one after the other; one line each: ``name value unit goal ok|short``.

A figure is a ratio within one run or CPU seconds, because machines are noisy. Exits 1 if a line is short or a
benchmark broke. ``python -m tests.bench agent core`` runs some of them.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main(names: list[str]) -> int:
    scripts = [one for one in sorted(HERE.glob("bench_*.py")) if not names or one.stem.removeprefix("bench_") in names]
    short, broken = [], []
    for script in scripts:
        with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for line in run.stdout:
                print(line, end="", flush=True)
                if line.split()[-1:] == ["short"]:
                    short.append(line.split()[0])
        if run.returncode not in (0, 1):
            broken.append(f"{script.name} ended with {run.returncode}")
    for text in broken:
        print(text, file=sys.stderr)
    print(f"{len(scripts)} benchmarks, {len(short)} figures short{': ' + ', '.join(short) if short else ''}")
    return 1 if short or broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
