"""A device whose wall clock is wrong, and can be set at any time: its agent looks at a clock that a file puts off.

Nothing outside the agent is touched: the clock of a machine cannot be namespaced, and libfaketime breaks Python's sleep
where it leaves the monotonic clock alone. Files get their times from the right clock, as on a device whose clock was
set after they were made.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Stands in for the interpreter that runs the agent: `exec PROGRAM -I -S -u -c CODE`.
_PROGRAM = """\
import sys, time
folder, code = sys.argv[1], sys.argv[sys.argv.index("-c") + 1]
real_ns = time.time_ns
def wrong_ns():
    with open(folder + "/offset_s") as file:
        return real_ns() + int(float(file.read()) * 1e9)
time.time_ns, time.time = wrong_ns, lambda: wrong_ns() / 1e9
sys.argv = ["-c"]
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
"""


class WrongClock:
    def __init__(self, folder: Path, offset_s: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.set(offset_s)
        (folder / "program.py").write_text(_PROGRAM)
        self.python = folder / "python3"  # for `devices.NAME.python`
        words = f'"{sys.executable}" -I -S -u "{folder}/program.py" "{folder}" "$@"'
        self.python.write_text(f"#!/bin/sh\nexec {words}\n")
        self.python.chmod(0o755)

    def set(self, offset_s: float) -> None:
        """How far it is before the right time from now on."""
        new = self._folder / "offset_s.new"
        new.write_text(f"{offset_s}\n")
        new.rename(self._folder / "offset_s")
