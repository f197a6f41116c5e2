"""The first process of a lab host: makes a machine of its fresh namespaces, starts sshd, reaps whatever is left to it.

Runs inside the host. It is told what to do over its stdin, a word a line, and answers on its stdout. When stdin ends,
because its controller is gone, it ends too, and the kernel ends everything else of the host.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LISTEN = "0A"
PATIENCE_S = 60.0


def sh(*argv: str) -> None:
    subprocess.run(argv, check=True)


def make_machine(host: dict[str, Any]) -> None:
    """The order matters: what is mounted over must not hide what is still to be read."""
    sh("hostname", host["name"])
    sh("mount", "-t", "tmpfs", "-o", "mode=755", "none", "/run")
    for folder in ("/run/sshd", "/run/host", "/run/lock"):
        os.mkdir(folder, 0o755)
    sh("mount", "--bind", host["folder"], "/run/host")
    for name in ("passwd", "group", "shadow"):
        sh("mount", "--bind", f"/run/host/etc/{name}", f"/etc/{name}")
    sh("mount", "--bind", "/run/host/boot_id", "/proc/sys/kernel/random/boot_id")
    for folder in ("/tmp", "/dev/shm"):
        sh("mount", "-t", "tmpfs", "-o", "mode=1777", "none", folder)
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "address", "add", host["address"], "dev", "eth0")
    # The same card after a reboot: the controller remembers its number.
    sh("ip", "link", "set", "eth0", "address", host["mac"], "up")


def start_sshd() -> None:
    environment = {"PATH": os.environ["PATH"]}
    sshd = os.environ["LAB_SSHD"]
    command = [sshd, "-D", "-f", "/run/host/etc/sshd_config", "-E", "/run/host/sshd.log"]
    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    end_s = time.monotonic() + PATIENCE_S
    while not listens():
        if time.monotonic() > end_s:
            raise SystemExit("sshd never listened")
        time.sleep(0.01)


def listens() -> bool:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(fields[1].endswith(":0016") and fields[3] == LISTEN for fields in map(str.split, lines))


def say(word: str) -> None:
    os.write(1, word.encode() + b"\n")


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    host = json.loads(sys.argv[1])
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    say("born")
    while True:
        ready, _, _ = select.select([0, reader], [], [])
        if reader in ready:
            os.read(reader, 4096)
            reap()
        if 0 in ready:
            words = os.read(0, 4096).split()
            if not words:
                os._exit(0)
            for word in words:
                if word == b"boot":
                    make_machine(host)
                    start_sshd()
                    # Only now: before, subprocess must get the exit codes of its own children.
                    signal.set_wakeup_fd(writer)
                elif word == b"sshd":
                    start_sshd()
                reap()
                say("up")


if __name__ == "__main__":
    main()
