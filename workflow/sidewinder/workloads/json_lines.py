"""JSON lines: the objects that a program printed, one a line, among whatever else it and its drivers printed."""

from __future__ import annotations

import json

from sidewinder.model import Json, Output, RawResult


def objects(stdout: Output) -> tuple[list[dict[str, Json]], int | None]:
    """(objects, number of the first line that starts an object and does not end it).

    Only a line whose first byte is ``{`` is looked at. Reading stops at a broken one: what comes after a cut was
    printed by something else.
    """
    torn = b"\n" if stdout.dropped_bytes else b""
    text = stdout.head + torn + stdout.tail
    found: list[dict[str, Json]] = []
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.startswith(b"{"):
            continue
        try:
            found.append(json.loads(line))
        except ValueError:  # cut short, or bytes that are no text
            return found, number
    return found, None


def seen(raw: RawResult) -> str:
    """What was on stdout, for a message about what was not."""
    stdout = raw.stdout
    if stdout.total_bytes == 0:
        return ": stdout is empty"
    shown = (stdout.tail or stdout.head)[-60:].decode("utf-8", "replace")
    dropped = f", {stdout.dropped_bytes} of them not kept" if stdout.dropped_bytes else ""
    return f" ({stdout.total_bytes} bytes on stdout{dropped}, ending {shown!r})"
