"""The registry: which workloads there are, by the backend name that a config gives.

Workloads are found by entry point (group ``sidewinder.workloads``); one is imported when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from sidewinder.errors import ConfigError
from sidewinder.workloads.base import Workload

GROUP = "sidewinder.workloads"

_for_tests: dict[str, Workload] = {}


@cache
def _entry_points() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def known() -> tuple[str, ...]:
    """The names of all backends, sorted. Imports none of them."""
    return tuple(sorted({*_entry_points(), *_for_tests}))


def get(backend: str) -> Workload:
    """The one workload of this backend. ``ConfigError`` names the known ones, or says why it cannot be loaded."""
    return _for_tests.get(backend) or _load(backend)


@cache
def _load(backend: str) -> Workload:
    entry = _entry_points().get(backend)
    if entry is None:
        near = get_close_matches(backend, known(), n=1)
        raise ConfigError(
            f"no such backend; known are {', '.join(known())}",
            key="backend",
            value=backend,
            hint=f"did you mean {near[0]!r}?" if near else None,
        )
    try:
        made: Workload = entry.load()()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the workload of this backend cannot be loaded from {entry.value}: {error}", key="backend", value=backend
        ) from error
    return made


@contextmanager
def register_for_tests(*workloads: Workload) -> Iterator[None]:
    """Put fakes in front of the entry points while a test runs."""
    before = dict(_for_tests)
    _for_tests.update({workload.backend: workload for workload in workloads})
    try:
        yield
    finally:
        _for_tests.clear()
        _for_tests.update(before)
