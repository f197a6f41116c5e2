"""Servers for the benchmarks: real OpenSSH on loopback, and a controller that knows nothing of who runs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from workplace import workplace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from e2e.helpers_ssh import SSHD, Sshd


def line(name: str, value: float, unit: str, goal: float) -> bool:
    """Prints one figure; whether it keeps its goal."""
    print(f"{name} {value:.2f} {unit} <={goal:g} {'ok' if value <= goal else 'short'}", flush=True)
    return value <= goal


@contextmanager
def servers(count: int, *options: str) -> Iterator[tuple[Path, list[Sshd]]]:
    """A workplace and so many servers with keys, home folder and agent state of their own. Exit code 2 where there is
    no sshd: a figure that was not measured is not ok."""
    if SSHD is None:
        print(f"{Path(sys.argv[0]).name} needs a real sshd: apt-get install openssh-server", file=sys.stderr)
        raise SystemExit(2)
    with workplace() as folder, ExitStack() as stack:
        me = folder / "me"
        me.mkdir()
        os.environ.update(HOME=str(me), XDG_CACHE_HOME=str(folder / "here"))
        os.environ.pop("SSH_AUTH_SOCK", None)
        started = []
        for number in range(count):
            server = Sshd(folder / f"host{number}", options=options).start()
            stack.callback(server.stop)
            started.append(server)
        yield folder, started
