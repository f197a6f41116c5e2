"""The first process of a container: it buries orphans, ends when told, and ends the pod when nobody calls."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from sidewinder.agent.source import PYTHON_FLAGS
from sidewinder.transports import kubernetes_keeper as keeper
from sidewinder.transports.kubernetes_spec import KEEPER

PATIENCE_S = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a container is Linux")

# A subreaper gets orphans as a first process does; the rest of the keeper's text comes behind it.
ADOPTS = (
    "import ctypes; ctypes.CDLL(None).prctl(36, 1)\n"
    "import os\n"
    "if os.fork() == 0:\n"
    "    if os.fork() == 0: print(os.getpid(), flush=True); os._exit(0)\n"  # an orphan that ends at once
    "    os._exit(0)\n"
)
NOBODY = "\nsomebody_is_there = lambda: False\nif True:\n    sys.exit(keep(float(sys.argv[1])))\n"


@pytest.fixture
def begin() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    begun: list[subprocess.Popen[bytes]] = []

    def begin(text: str, idle_s: str) -> subprocess.Popen[bytes]:
        # a child inherits what is blocked: a signal that comes before it looks for signals is not lost
        before = signal.pthread_sigmask(signal.SIG_BLOCK, keeper.SIGNALS)
        try:
            begun.append(subprocess.Popen([sys.executable, *PYTHON_FLAGS, "-c", text, idle_s], stdout=subprocess.PIPE))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def children(pid: int) -> list[str]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.01)


def test_it_ends_when_it_is_told(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = begin(KEEPER, "0")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == keeper.TERMINATED


def test_it_buries_orphans(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    process = begin(ADOPTS + KEEPER, "0")
    assert process.stdout is not None
    orphan = process.stdout.readline().decode().strip()
    until(lambda: not os.path.exists(f"/proc/{orphan}"), "the orphan is buried")
    until(lambda: not children(process.pid), "no child is left, dead or alive")
    assert process.poll() is None


def test_it_ends_well_when_nobody_was_there(begin: Callable[..., subprocess.Popen[bytes]]) -> None:
    text = KEEPER.replace('if __name__ == "__main__":', "if False:") + NOBODY
    assert begin(text, "0.2").wait(PATIENCE_S) == 0
    waits = begin(text, "0")  # for ever: it ends by a signal, not by itself
    waits.send_signal(signal.SIGTERM)
    assert waits.wait(PATIENCE_S) == keeper.TERMINATED


def test_who_is_called_in_from_outside_has_no_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (os.getpid(), os.getppid()) in keeper.parents()
    seen: list[tuple[int, int]] = [(1, 0), (os.getpid(), 0), (7, 1)]
    monkeypatch.setattr(keeper, "parents", lambda: iter(seen))
    assert not keeper.somebody_is_there(), "itself, and what it takes care of"
    seen.append((9, 0))
    assert keeper.somebody_is_there()
