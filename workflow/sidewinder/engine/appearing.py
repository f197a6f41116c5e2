"""An appearing: outputs that a command has written and that this machine's view of a network folder shows late.

A folder's cached listing can miss a new name for minutes; asking for the listing anew is what wakes it up. So each look
lists the folder first, and looks go on for as long as Snakemake's ``--latency-wait`` allows.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0
SEEN_NAMES = 20


class View:
    """A folder as this machine sees it."""

    def names(self, folder: str) -> list[str]:
        """What lies in it, asked of its server. Raises ``OSError``."""
        return os.listdir(folder)

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)


class Missing:
    """Outputs that did not appear: ``paths``, how long was waited, and what lies in their folders instead."""

    def __init__(self, paths: Sequence[str], waited_s: float, allowance_s: float, seen: dict[str, str]) -> None:
        self.paths, self.waited_s, self.allowance_s, self.seen = tuple(paths), waited_s, allowance_s, seen

    def __str__(self) -> str:
        names = ", ".join(self.paths[:5]) + (f" and {len(self.paths) - 5} more" if len(self.paths) > 5 else "")
        seen = "; ".join(f"{folder} {holds}" for folder, holds in list(self.seen.items())[:3])
        return (
            f"{names}. Waited {self.waited_s:.3g} s for a file system that shows it late (--latency-wait is "
            f"{self.allowance_s:g}); {seen}"
        )


async def appear(
    workdir: str,
    paths: Sequence[str],
    allowance_s: float,
    *,
    view: View | None = None,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Missing | None:
    """Wait until all of ``paths`` (relative to ``workdir``) are there: None, or those that never came."""
    view = view or View()
    begin_s, pause_s = now_s(), FIRST_PAUSE_S
    missing = list(paths)
    while missing := await asyncio.to_thread(_still_missing, workdir, missing, view):
        left_s = begin_s + allowance_s - now_s()
        if left_s <= 0:
            seen = await asyncio.to_thread(_seen, workdir, missing, view)
            return Missing(missing, now_s() - begin_s, allowance_s, seen)
        await sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return None


def _still_missing(workdir: str, paths: Sequence[str], view: View) -> list[str]:
    absent = [path for path in paths if not view.exists(os.path.join(workdir, path))]
    for folder in {os.path.dirname(os.path.join(workdir, path)) for path in absent}:
        try:
            view.names(folder)
        except OSError:
            pass  # it may appear itself yet
    return [path for path in absent if not view.exists(os.path.join(workdir, path))]


def _seen(workdir: str, paths: Sequence[str], view: View) -> dict[str, str]:
    seen = {}
    for folder in dict.fromkeys(os.path.dirname(path) for path in paths):
        try:
            names = sorted(view.names(os.path.join(workdir, folder)))
        except OSError as error:
            seen[folder or "the working directory"] = f"cannot be listed ({error.strerror or error})"
            continue
        more = f" and {len(names) - SEEN_NAMES} more" if len(names) > SEEN_NAMES else ""
        seen[folder or "the working directory"] = (
            f"holds {', '.join(names[:SEEN_NAMES])}{more}" if names else "is empty"
        )
    return seen
