"""An outline: how one lab's sweep goes as a whole, kept in ``schedule.json`` while it runs (M-120).

It is for people and for the report; nothing decides by it. So it is written at most every few seconds, and a disk that
refuses it costs a warning.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from sidewinder.core.instructions import Note
from sidewinder.files import schedule

from .clock import utc_now
from .session import Session

EVERY_S = 5.0


class Outline:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._earlier = schedule.read(session.root) or schedule.Schedule()
        self._began_s = time.monotonic()
        self._written_s = self._began_s
        self._changed = False
        self._already = 0
        self._outcomes: dict[str, Counter[str]] = {}
        self._failures: Counter[str] = Counter()  # on the way to each device, as its breaker counts them
        self._moved = 0
        self._survived: Counter[str] = Counter()  # links that came back in time: no breaker has heard of those
        self._healed: Counter[str] = Counter()  # those, and the runs that were found again after a back-off
        self._breakers: dict[str, dict[str, Any]] = {}

    def _clock_of(self, device: str) -> dict[str, Any]:
        """A device that this invocation had no need to ask keeps what an earlier one read."""
        entry = self._session.links[device].clock.entry()
        return self._earlier.get("clock_offsets", {}).get(device, entry) if entry["status"] == "unknown" else entry

    def _warnings_of(self, device: str) -> list[str]:
        link = self._session.links[device]
        if link.clock.entry()["status"] == "unknown":
            return self._earlier.get("device_warnings", {}).get(device, [])
        return list(link.remarks.values())

    def changed(self) -> None:
        self._changed = True

    def already_done(self) -> None:
        self._already += 1
        self._changed = True

    def ended(self, device: str, outcome: str) -> None:
        self._outcomes.setdefault(device, Counter())[outcome] += 1
        self._changed = True

    def noted(self, note: Note) -> bool:
        """True: a person wants to see this now, not in a few seconds."""
        device, fields = note.device.partition(":")[2], note.fields
        if "failures" in fields:
            self._failures[device] = max(self._failures[device], fields["failures"])
            self._changed = True
        match note.kind:
            case "moved":
                self._moved += 1
            case "reattached":
                self._healed[device] += 1
                self._changed = True
                return False
            case "reconnected":
                self._healed[device] += 1
                self._survived[device] += 1
                self._changed = True
                return False
            case "device_down" | "quarantined" | "given_up" | "probe_failed":
                known = self._breakers.setdefault(device, {"trips": 0, "recoveries": 0})
                known.update(open_at_end=True, reason=fields.get("reason") or fields.get("error", ""))
                known["trips"] = fields.get("trips", known["trips"])
            case "device_up":
                known = self._breakers.setdefault(device, {"trips": 0, "recoveries": 0})
                known.update(recoveries=fields.get("recoveries", 1), open_at_end=False)
            case _:
                return False
        self._changed = True
        return True

    @property
    def is_due(self) -> bool:
        return self._changed and time.monotonic() - self._written_s >= EVERY_S

    def write(self, *, last: bool = False) -> None:
        """Raises ``PublishError``. Writes nothing where nothing was asked for."""
        if not self._changed and not (last and self._outcomes):
            return
        self._changed = False
        self._written_s = time.monotonic()
        schedule.publish(self._session.root, self._content(), sync=last)

    def _content(self) -> schedule.Schedule:
        lab = self._session.plan.lab
        total = sum(self._outcomes.values(), Counter())
        failures = self._failures + self._survived
        groups: dict[str, dict[str, Any]] = {}
        for device in lab.devices.values():
            if device.resource_group is not None:
                group = groups.setdefault(device.resource_group, {"limit": 1, "devices": []})
                group["devices"].append(device.id)
        for group in groups.values():
            limits = [lab.devices[name].group_max_concurrency for name in group["devices"]]
            group["limit"] = min((limit for limit in limits if limit is not None), default=1)
        retry = lab.policy.retry
        return {
            "mode": "concurrent",
            "requested": total.total() + self._already,
            "skipped_already_done": self._already,
            "executed": total["ok"] + total["failed"],
            "ok": total["ok"],
            "failed": total["failed"] + total["hole"],
            "moved": self._moved,
            "elapsed_s": round(time.monotonic() - self._began_s, 3),
            "by_device": {
                name: {"ok": count["ok"], "failed": count["failed"] + count["hole"]}
                for name, count in sorted(self._outcomes.items())
            },
            "concurrency": {device.id: device.max_concurrency for device in lab.devices.values()},
            "resource_groups": groups,
            "retry_policy": {
                "max_attempts": retry.max_attempts,
                "backoff_s": retry.backoff_s,
                "backoff_factor": retry.backoff_factor,
                "max_backoff_s": retry.max_backoff_s,
                "retried_only": "transport",
            },
            "transport_failures": failures.total(),
            "device_transport_failures": dict(sorted(failures.items())),
            "links_healed": dict(sorted(self._healed.items())),
            "breakers": self._breakers,
            "clock_offsets": {name: self._clock_of(name) for name in self._session.links},
            "device_warnings": {name: told for name in self._session.links if (told := self._warnings_of(name))},
            "waiting": {
                name: {"reason": link.waiting.reason, "since_utc": link.waiting.since_utc}
                for name, link in self._session.links.items()
                if link.waiting.reason is not None
            },
            "order": {"by": lab.policy.order_by, "seed": lab.policy.order_seed},
            "updated_utc": utc_now(),
        }
