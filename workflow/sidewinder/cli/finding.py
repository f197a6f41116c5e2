"""A finding: one thing that `sidewinder doctor` looked at, and how it is."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """``verdict``: "ok", "warn" (goes on, but know it), "fail" (points will be holes)."""

    where: str
    what: str
    verdict: str
    text: str
