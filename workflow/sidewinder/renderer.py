"""A renderer: the process beside the controller in which tables and the report are made.

pandas and what draws need 100 MB and more, which the controller of a sweep of 50 000 points does not have to carry.
One process for all of them, started with the first and ended with the controller; one product at a time.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable
from typing import Any

from .errors import SidewinderError

_lock = threading.Lock()
_process: subprocess.Popen[str] | None = None


class RenderError(SidewinderError):
    """A table or the report could not be made; records are safe."""


def table(folder: str, selected: Iterable[str] | None, device: str, out: str) -> None:
    _ask({"make": "table", "folder": folder, "selected": _listed(selected), "device": device, "out": out})


def report(folder: str, selected: Iterable[str] | None) -> None:
    _ask({"make": "report", "folder": folder, "selected": _listed(selected)})


def _listed(selected: Iterable[str] | None) -> list[str] | None:
    return None if selected is None else sorted(selected)


def _ask(request: dict[str, Any]) -> None:
    with _lock:
        process = _started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise RenderError(f"the process that makes {request['make']}s ended with {_forget()}; see above")
    error = json.loads(answer)["error"]
    if error is not None:
        raise RenderError(f"the {request['make']} could not be made: {error}")


def _started() -> subprocess.Popen[str]:
    global _process
    if _process is None or _process.poll() is not None:
        # a session of its own: Ctrl-C is the controller's business, and this ends with its input
        _process = subprocess.Popen(
            [sys.executable, "-m", "sidewinder.renderer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(_forget)
    return _process


def _forget() -> int | None:
    """End it and wait for it, so that its CPU time is counted as the controller's."""
    global _process
    process, _process = _process, None
    if process is None:
        return None
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        return process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _serve() -> None:
    from dataclasses import replace

    from . import report as reports
    from .files import plan as plans

    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the answers
    for line in sys.stdin:
        request = json.loads(line)
        error = None
        try:
            plan = plans.read(request["folder"])
            if request["selected"] is not None:
                plan = replace(plan, selected=frozenset(request["selected"]))
            if request["make"] == "table":
                reports.table(request["folder"], plan, request["device"], request["out"])
            else:
                reports.build(request["folder"], plan)
        except SidewinderError as problem:
            error = str(problem)
        except Exception:  # noqa: BLE001 -- a bug of ours: told in full to whoever asked
            error = traceback.format_exc()
        answers.write(json.dumps({"error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
