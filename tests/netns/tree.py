"""A workload of three processes: wrapper, child, and a grandchild, the witness, that leaves session and group.

``tree.py wrapper WITNESS_PROGRAM FOLDER SECONDS|hold``. Each waits for the one below.
"""

from __future__ import annotations

import subprocess
import sys


def main() -> int:
    role, witness, folder, how_long = sys.argv[1:5]
    below = [sys.executable, "-S", witness, folder, "tree", how_long]
    if role == "wrapper":
        below = [sys.executable, "-S", __file__, "child", *sys.argv[2:]]
    return subprocess.Popen(below, start_new_session=role == "child").wait()


if __name__ == "__main__":
    sys.exit(main())
