"""Raw output: what a workload printed, as the bytes it printed, kept beside the record that was read out of it.

Files are named by attempt, so that a forced re-run that fails cannot overwrite the output of the ok record it leaves
in place. They are whole or absent but not synced: a power cut may cost a raw file, never a record.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from sidewinder.model import Output, RawResult

from . import atomic
from .layout import RunFolder

STDOUT_CHARS: Final = 16_000  # in the record, for people; the bytes are in the files
STDERR_CHARS: Final = 8_000

_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# What neither JSON viewers nor HTML can show; tabs and line ends stay.
_CONTROL: Final = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), "�")


def store(
    folder: str, device: str, run_id: str, raw: RawResult, *, n: int = 1, ops: atomic.FileOps = atomic.REAL
) -> dict[str, Any]:
    """Put both streams on disk (an empty one makes no file); what the record's ``raw`` says about it."""
    layout = RunFolder(folder)
    base = layout.raw(device, run_id)
    files: list[str] = []
    for name, output in (("stdout", raw.stdout), ("stderr", raw.stderr)):
        for suffix, data in _pieces(output):
            file = f"{n}.{name}{suffix}"
            atomic.publish(os.path.join(base, file), data, sync=False, what="raw output", ops=ops)
            files.append(file)
    shown: dict[str, Any] = {
        "stdout": display(raw.stdout, STDOUT_CHARS),
        "stderr": display(raw.stderr, STDERR_CHARS, keep_head=False),
    }
    if files:
        shown["dir"] = os.path.relpath(base, folder)
        shown["files"] = files
    return shown


def _pieces(output: Output) -> list[tuple[str, bytes]]:
    whole = output.whole()
    if whole is not None:
        return [("", whole)] if whole else []
    return [(suffix, data) for suffix, data in ((".head", output.head), (".tail", output.tail)) if data]


def display(output: Output, limit_chars: int, *, keep_head: bool = True) -> str:
    """The stream as text for people: bytes that are no UTF-8 become U+FFFD, what was left out is said in its place."""
    whole = output.whole()
    if whole is not None:
        return _shorten(_text(whole), limit_chars, keep_head)
    gap = f"\n[… {output.dropped_bytes} bytes not kept …]\n"
    half = limit_chars // 2
    head = _text(output.head)[:half] if keep_head else ""
    return head + gap + _text(output.tail)[-(half if keep_head else limit_chars) :]


def _shorten(text: str, limit_chars: int, keep_head: bool) -> str:
    if len(text) <= limit_chars:
        return text
    gap = f"\n[… {len(text) - limit_chars} characters in the raw files only …]\n"
    if not keep_head:
        return gap.lstrip() + text[-limit_chars:]
    half = limit_chars // 2
    return text[:half] + gap + text[half - limit_chars :]


def _text(data: bytes) -> str:
    return _ANSI.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n").translate(_CONTROL)


def last_lines(text: str, count: int = 5, width: int = 300) -> list[str]:
    """The last non-empty lines: where a failure says its reason."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [line[:width] for line in lines[-count:]]
