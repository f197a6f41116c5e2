"""Pods for the benchmarks: a real cluster, a namespace of its own, and what to say where there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import line
from workplace import workplace

from e2e.kubernetes.helpers_cluster import OPT_IN, Namespace, cluster, until, why_not
from engine.helpers_engine import Told

__all__ = ["left_out", "line", "pods", "until_told", "why_no_cables"]

LIMIT_S = 600.0


def left_out(names: tuple[str, ...], why: str) -> int:
    """Says which figures nobody measured. Exit code 0: they are not short, and not ok either."""
    for name in names:
        print(f"# left out: {name}")
    print(f"# {Path(sys.argv[0]).name}: {why}", flush=True)
    return 0


def until_told(told: Told, condition: Callable[[Told], bool], what: str) -> None:
    """However busy the machine is: a figure may be bad, a benchmark that broke says nothing."""
    until(lambda: told.crash is not None or condition(told), what, LIMIT_S)
    if told.crash is not None:
        raise told.crash


def why_no_cables() -> str | None:
    """Why nothing can be cut here; None: it can."""
    return why_not() or (
        f"a cable is cut, and a cluster named by {OPT_IN} is not ours to hurt"
        if os.environ.get(OPT_IN) == "1"
        else None
    )


@contextmanager
def pods() -> Iterator[tuple[Path, Namespace]]:
    """A workplace and a namespace. The controller knows nothing of who runs it."""
    with cluster() as one, workplace() as folder, one.namespace() as namespace:
        me = folder / "me"
        me.mkdir()
        os.environ.update(HOME=str(me), XDG_CACHE_HOME=str(folder / "here"))
        yield folder, namespace
