"""The demo of docs/failures.md: a lab of three machines, one of which dies in mid-sweep, as a recorded terminal.

    .venv/bin/python docs/demo/dying_device.py docs/demo/dying-device.cast

Everything in it is real: this machine and two OpenSSH servers (on loopback, with state of their own), `snakemake` in a
terminal, and a server that is killed with all its sessions. The recording is an asciicast v2 file; `npx svg-term-cli
--in FILE --out FILE.svg --window` makes the picture of it.
"""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from fcntl import ioctl
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))

from e2e.helpers_ssh import Sshd  # noqa: E402

COLUMNS, ROWS = 112, 26
PAUSE_S = 1.2  # longer silences are cut to this: the recording is for reading, not for waiting
REDRAWN = "\r\x1b[2K\x1b[1A"  # how the table of devices is drawn again over itself
REDRAW_S = 0.06  # where nothing but a clock in that table moves, time runs about ten times as fast
HASHING = (
    "import hashlib, sys, time\n"
    "start, n = time.perf_counter(), 0\n"
    "while time.perf_counter() - start < float(sys.argv[1]):\n"
    "    hashlib.sha256(bytes(65536)).digest()\n"
    "    n += 1\n"
    "print('rate', n * 65536 / 1e6 / (time.perf_counter() - start))\n"
)


def lab(pi: Sshd, board: Sshd) -> dict[str, Any]:
    return {
        "experiment": "bad-night",
        "policy": {"retry": {"backoff_s": 1}},
        "devices": {
            "laptop": {},
            "pi5": pi.settings(),
            # a demo has no time for the default cooldown of three minutes
            "board": {**board.settings(), "recovery_after_s": 4, "give_up_after_s": 10},
        },
        "matrix": [
            {
                "backend": "command",
                "devices": ["laptop", "pi5", "board"],
                "command": [sys.executable, "-c", HASHING, "{seconds}"],
                "parameters": {"seconds": [1, 2, 3, 4]},
                "metrics": {"sha256_MBps": "rate ([0-9.]+)"},
            }
        ],
    }


class Recording:
    """An asciicast v2: what a terminal showed, and when."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._at_s = 0.0
        self._last_s = time.monotonic()
        self._lines = 0
        header = {"version": 2, "width": COLUMNS, "height": ROWS, "env": {"TERM": "xterm-256color"}}
        self._file.write(json.dumps(header) + "\n")

    def show(self, text: str) -> None:
        now_s = time.monotonic()
        only_redrawn = text.startswith(REDRAWN) and text.count("\n") == self._lines
        self._lines = text.count("\n")
        self._at_s += min(now_s - self._last_s, REDRAW_S if only_redrawn else PAUSE_S)
        self._last_s = now_s
        self._file.write(json.dumps([round(self._at_s, 3), "o", text]) + "\n")

    def type(self, command: str) -> None:
        self.show("\x1b[1;32m$\x1b[0m ")
        for letter in command:
            time.sleep(0.03)
            self.show(letter)
        self.show("\r\n")

    def run(self, command: str, where: Path) -> None:
        self.type(command)
        bin_dir = Path(sys.executable).parent
        environ = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "TERM": "xterm-256color"}
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        process = subprocess.Popen(
            command.split(), cwd=where, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
        )
        os.close(theirs)
        while True:
            ready, _, _ = select.select([ours], [], [], 0.2)
            if ready:
                try:
                    data = os.read(ours, 65536)
                except OSError:  # how Linux says that the last writer is gone
                    break
                if not data:
                    break
                self.show(data.decode("utf-8", "replace"))
            elif process.poll() is not None:
                break
        process.wait()
        os.close(ours)

    def close(self) -> None:
        self._file.close()


def main(out: Path) -> None:
    where = Path(tempfile.mkdtemp(prefix="sidewinder-demo-"))
    folder = where / "lab"
    for part in ("profiles", "rules"):
        shutil.copytree(REPO / part, folder / part)
    shutil.copy(REPO / "Snakefile", folder)
    (folder / "config").mkdir()
    pi, board = Sshd(where / "pi5").start(), Sshd(where / "board").start()
    recording = Recording(out)
    try:
        (folder / "config/lab.yaml").write_text(json.dumps(lab(pi, board)))

        def power_cut() -> None:
            records = folder / "runs/bad-night/records/board"
            while not list(records.glob("*.json")):
                time.sleep(0.05)
            board.die()

        threading.Thread(target=power_cut, daemon=True).start()
        recording.run("snakemake --profile profiles/lab", folder)
        recording.run("sidewinder devices", folder)
        recording.type("# the board has its power back: the same command again")
        board.start()
        recording.run("snakemake --profile profiles/lab", folder)
        time.sleep(PAUSE_S)
        recording.show("\x1b[1;32m$\x1b[0m ")
    finally:
        recording.close()
        pi.stop()
        board.stop()
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
