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
    if text is not None:
        logger.warning(text, extra=_fields(event, jobid))
        return
    # Not by way of the logger: its console and its file would pay for every point, and the file get an empty line each.
    displays = [handler for handler in logger.handlers if not _only_writes_text(handler)]
    if displays and logger.isEnabledFor(logging.INFO):
        fields = _fields(event, jobid)
        record = logger.makeRecord(logger.name, logging.INFO, __file__, 0, None, (), None, extra=fields)
        for handler in displays:
            handler.handle(record)


def _fields(event: Mapping[str, Any], jobid: int | None) -> dict[str, Any]:
    fields = {key: value for key, value in event.items() if key not in _RESERVED}
    fields |= {"event": "sidewinder", "v": VERSION}
    if jobid is not None:
        fields["jobid"] = jobid
    return fields


def _only_writes_text(handler: logging.Handler) -> bool:
    return type(handler) is logging.FileHandler or type(handler).__module__.startswith("snakemake.")


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
        case "link_lost":
            wait = (
                f"; the run goes on there and is asked for up to {event['lease_s']:g} s" if "lease_s" in event else ""
            )
            return f"{where}: the link was lost ({event.get('reason', '')}){wait}"
        case "link_back":
            return f"{where}: the link is back after {event.get('away_s')} s, the run is {event.get('state')}"
        case "busy":
            return f"{where} is held by {event.get('holder', 'somebody else')}: waiting"
        case "waiting":
            return f"{where} waits: {event.get('reason', '')}"
        case "waited":
            return f"{where} {'is' if event.get('ready') else 'was not'} ready after {event.get('waited_s', 0):.0f} s"
        case "moved":
            return f"{where} was moved: {event.get('reason', '')}"
        case "warning":
            return f"{where}: {event.get('message', '')}" if where else str(event.get("message", ""))
    return None
