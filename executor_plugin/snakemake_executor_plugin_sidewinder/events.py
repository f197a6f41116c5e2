"""An event for displays: what the engine tells, as a log record that any of Snakemake's logger plugins can read.

``extra={"event": "sidewinder", "v": 1, "kind": …}`` with the keys of docs/notes/contracts.md. Ordinary progress has no
text, so that Snakemake's own console prints nothing for it; what a person must see is a warning with its sentence.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

VERSION = 1
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def emit(logger: Any, event: Mapping[str, Any], jobid: int | None = None) -> None:
    """Hand one event of the engine to Snakemake's logger, from any thread."""
    text = _sentence(event)
    extra = {key: value for key, value in event.items() if key not in _RESERVED}
    extra |= {"event": "sidewinder", "v": VERSION}
    if jobid is not None:
        extra["jobid"] = jobid
    # the default console prints a record's msg as it is, a logger plugin gets it as `message`
    logger.log(logging.INFO if text is None else logging.WARNING, text, extra=extra)


def _sentence(event: Mapping[str, Any]) -> str | None:
    """The words for a person who has no logger plugin; None: nothing that has to be seen."""
    where = " ".join(str(event[key]) for key in ("device", "label") if event.get(key))
    match event.get("kind"):
        case "finished" if event.get("outcome") in ("failed", "hole"):
            failure = event.get("failure") or {}
            what = "failed" if event["outcome"] == "failed" else "was not measured"
            return f"{where} {what} ({failure.get('class', '?')}): {failure.get('message', 'no reason given')}"
        case "retry":
            wait = f", again in {event['delay_s']:.0f} s" if event.get("delay_s") is not None else ""
            return f"{where}: attempt {event.get('attempt', '?')} was lost ({event.get('error', '')}){wait}"
        case "down":
            return f"{where} is down: {event.get('reason', '')}"
        case "up":
            return f"{where} is up again: {event.get('reason', '')}"
        case "busy":
            return f"{where} is held by {event.get('holder', 'somebody else')}: waiting"
        case "moved":
            return f"{where} was moved: {event.get('reason', '')}"
        case "warning":
            return f"{where}: {event.get('message', '')}" if where else str(event.get("message", ""))
    return None
