"""The promises of docs/design.md §2, each held against the evidence of a soak: files alone.

A verdict is ``kept`` with what it rests on, or ``BROKEN`` with the first few cases.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from sidewinder.files import records as record_files
from soak.evidence import Evidence, Execution, Json
from soak.sweep import FAILS, RECOVERY_S

SHOWN = 5
# A run whose link is lost keeps its turn for 65 s at most; the rest is for a busy machine.
LONGEST_TURN_S = 100.0
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)")
LINK_FAULTS = (
    *("cut", "drop", "reset", "front killed", "front frozen", "session killed"),
    *("sshd restarted", "sshd away", "sshd frozen"),
    *("node cut", "node cut for long", "kubelet killed", "kubelet away", "API server restarted"),
)


class Verdict(NamedTuple):
    number: int
    broken: list[str]
    evidence: str

    def __str__(self) -> str:
        if self.broken:
            more = f" (and {len(self.broken) - SHOWN} more)" if len(self.broken) > SHOWN else ""
            return f"promise {self.number}: BROKEN {'; '.join(self.broken[:SHOWN])}{more}"
        return f"promise {self.number}: kept ({self.evidence})"


def check(evidence: Evidence) -> list[Verdict]:
    return [Verdict(number, *look(evidence)) for number, look in enumerate(PROMISES, 1)]


Look = Callable[[Evidence], tuple[list[str], str]]


def every_point_ends_as_one_thing(e: Evidence) -> tuple[list[str], str]:
    broken: list[str] = []
    counts: Counter[str] = Counter()
    planned = set()
    for name, point in e.points.items():
        planned.add((point["device"], point["run_id"]))
        path = e.root / "records" / point["device"] / f"{point['run_id']}.json"
        status = record_files.status_of(str(path), point["run_id"])
        wanted = "failed" if point["kind"] in FAILS else "ok"
        counts[status] += 1
        if status != wanted:
            why = e.record_of(name).get("error", "")
            broken.append(f"{name} ({point['kind']}) on {point['device']} is {status}, not {wanted}: {why}")
        elif wanted == "failed" and e.record_of(name)["failure"]["class"] != FAILS[point["kind"]]:
            broken.append(f"{name} ({point['kind']}) failed as {e.record_of(name)['failure']}")
    for device, run_id in e.records.keys() - planned:
        if not _is_copy(e.records[device, run_id]):
            broken.append(f"nobody planned records/{device}/{run_id}.json")
    return broken, f"{len(e.points)} points: {', '.join(f'{n} {status}' for status, n in sorted(counts.items()))}"


def results_are_not_retried(e: Evidence) -> tuple[list[str], str]:
    """A failure is a result: measured once an invocation, and never again when it is accepted."""
    broken, accepted, again = [], 0, 0
    for name, point in e.points.items():
        if point["kind"] not in FAILS:
            continue
        runs = e.runs_of(point["run_id"])
        if "accepted_s" in point:
            accepted += 1
            broken += [f"{name} ran after it was accepted" for one in runs if one.start_s > point["accepted_s"]]
        for one, other in pairwise([one for one in runs if one.complete]):
            again += 1
            same = _invocation(e, one.last_s) == _invocation(e, other.start_s)
            # or its result was lost with the machine, or with the runner
            if same and not e.deadly(one, one.start_s, other.start_s):
                broken.append(f"{name} ran twice in invocation {_invocation(e, one.last_s)}: {one.n} and {other.n}")
    return (
        broken,
        f"{accepted} accepted failures ran no more, others {again} times again in {len(e.invocations)} invocations",
    )


def repeats_are_told(e: Evidence) -> tuple[list[str], str]:
    broken: list[str] = []
    claims: dict[str, set[int]] = defaultdict(set)
    accepted_s = {point["run_id"]: point["accepted_s"] for point in e.points.values() if "accepted_s" in point}
    later: dict[str, set[int]] = defaultdict(set)  # claimed when the record was there, then killed, then accepted
    ended: dict[str, set[int]] = defaultdict(set)
    for line in e.journal:
        if line.get("event") in ("claimed", "adopted"):
            run_id = line["run_id"]
            claims[run_id].add(line["n"])
            if run_id in accepted_s and e.at_s(line["utc"]) > e.published_s(line["device"], run_id):
                later[run_id].add(line["n"])
        elif line.get("event") == "ended":
            ended[line["run_id"]].add(line["n"])
    told: dict[str, list[Json]] = defaultdict(list)
    for line in e.ledger:
        if line.get("run_id"):
            told[line["run_id"]].append(line)
    repeats = 0
    for run_id, numbers in claims.items():
        for n in sorted(numbers)[1:]:
            if n - 1 in ended[run_id]:
                continue  # a failed result, measured again by a later invocation
            repeats += 1
            if not any(line.get("attempt") == n - 1 for line in told[run_id]):
                broken.append(f"no line of retries.jsonl says why attempt {n} of {run_id} was made")
    for one in e.executions:
        if one.n not in claims[one.run_id]:
            broken.append(f"attempt {one.n} of {one.run_id} ran on {one.host} and was never claimed in the journal")
    warned = Counter[str]()
    for (device, run_id), record in e.records.items():
        last = max((attempt["n"] for attempt in record.get("attempts", ())), default=None)
        if last is None or record.get("failure", {}).get("class") == "not_attempted":
            continue
        if last != max(claims[run_id] - later[run_id], default=None):
            broken.append(f"{device}/{run_id} is the result of attempt {last}, the journal knows {claims[run_id]}")
        warnings = " ".join(record.get("warnings", ()))
        for event, word in (("adopted", "taken over"), ("reattached", "taken over"), ("reconnected", "the link was")):
            if any(line["event"] == event and line.get("attempt") == last for line in told[run_id]):
                warned[event] += 1
                if word not in warnings:
                    broken.append(f"{device}/{run_id}: the ledger says {event}, the record's warnings do not")
        before = [line for line in told[run_id] if line["event"] == "repeat" and line.get("attempt") == last - 1]
        if before and last - 1 not in ended[run_id]:  # else it came to a result after all, and had a record of its own
            warned["repeat"] += 1
            if f"attempt {last - 1}" not in warnings:
                broken.append(
                    f"{device}/{run_id}: attempt {last - 1} was repeated, the record's warnings do not say so"
                )
    known = ", ".join(f"{count} {event}" for event, count in sorted(warned.items()))
    return broken, f"{repeats} repeats have their line; in the warnings of records: {known}"


def work_stays_on_its_device(e: Evidence) -> tuple[list[str], str]:
    broken = []
    home = {point["run_id"]: point["device"] for point in e.points.values()}
    copies = {line["moved_run_id"]: line for line in e.ledger if line.get("event") == "failover"}
    for one in e.executions:
        if one.run_id in home and one.host != home[one.run_id]:
            broken.append(f"{one.run_id} of {home[one.run_id]} ran on {one.host}")
        elif one.run_id not in home and (one.run_id not in copies or copies[one.run_id]["to_device"] != one.host):
            broken.append(f"{one.run_id} ran on {one.host}, and no line says that it was moved there")
    for (device, run_id), record in e.records.items():
        if record.get("identity", {}).get("device") != device or record.get("device", {}).get("device_id") != device:
            broken.append(f"records/{device}/{run_id}.json is of {record.get('device', {}).get('device_id')}")
        if _is_copy(record) and run_id in home:
            broken.append(f"the copy {run_id} has the run id of a planned point")
    pinned = e.settings.get("pinned", {})
    broken += [
        f"{one.run} of {one.host} ran on {one.node}, the device is pinned to {pinned[one.host]}"
        for one in e.executions
        if one.host in pinned and one.node != pinned[one.host]
    ]
    pods = {(one.run_id, one.start_ns): one for one in e.executions if one.pod}
    named = 0
    for (device, run_id), record in e.records.items():
        told = record.get("device", {}).get("pod", {})
        ran = pods.get((run_id, record.get("metrics", {}).get("start_ns", 0)))
        if ran is not None:
            named += 1
            if (told.get("node"), told.get("uid")) != (ran.node, ran.pod):
                where = f"{told.get('uid')} on {told.get('node')}"
                broken.append(f"{device}/{run_id} says that it ran in pod {where}: it was {ran.pod} on {ran.node}")
    measured = sum(_is_copy(record) for record in e.records.values())
    seen = f", {named} records name the pod and node where it was" if pods else ""
    return (
        broken,
        f"{len(e.executions)} executions; {len(copies)} points moved as declared, {measured} copies recorded{seen}",
    )


def groups_keep_their_limit(e: Evidence) -> tuple[list[str], str]:
    members = e.settings["group"]
    inside = [one for one in e.executions if one.host in members and not one.left]
    broken = [
        f"{one.run} on {one.host} and {other.run} on {other.host} at {other.start_s:.2f} s"
        for one, other in _overlaps([one for one in e.executions if one.host in members])
        if one.host != other.host
    ]
    longest_s = 0.0
    for number, (one, other) in enumerate(pairwise(inside), 1):
        if any(_could_have_run(e, host, one, other, inside[number:]) for host in members):
            longest_s = max(longest_s, other.start_s - one.last_s)
            if other.start_s - one.last_s > LONGEST_TURN_S:
                broken.append(f"nothing ran from {one.last_s:.1f} to {other.start_s:.1f} s, and a member was well")
    told = f"never two at once, a member that was well waited {longest_s:.1f} s at most"
    return broken, f"{len(inside)} runs of {' and '.join(members)}, {told}"


def _could_have_run(e: Evidence, host: str, one: Execution, other: Execution, rest: list[Execution]) -> bool:
    """Between two runs of a group: this member was well, had something to do, and its controller lived."""
    from_s, to_s = one.last_s - 1.0, other.start_s
    mends_s = e.settings.get("mends_s", 0.0)  # a pod is not there again when its fault is over
    return (
        not any(
            e.strikes(fault, host) and fault.start_s < to_s and fault.end_s + mends_s > from_s for fault in e.faults
        )
        and any(later.host == host for later in rest)
        and any(alive["start_s"] < one.last_s and alive["end_s"] > to_s for alive in e.invocations)
    )


def a_breaker_costs_one_probe_a_cooldown(e: Evidence) -> tuple[list[str], str]:
    broken, opened, probes, after_restart = [], 0, 0, 0
    resting: dict[str, tuple[float, float]] = {}  # device: down or probed at, next probe at
    for line in e.journal:
        device = line.get("device", "")
        if line.get("event") == "breaker":
            at_s = e.at_s(line["utc"])
            change = line.get("change")
            opened += change == "device_down"
            if change == "probe_failed":
                probes += 1
                if device in resting:
                    before_s, _ = resting[device]
                    restarted = _invocation(e, before_s) != _invocation(e, at_s)
                    after_restart += restarted
                    if not restarted and at_s < before_s + RECOVERY_S - 0.5:
                        broken.append(f"{device} was probed {at_s - before_s:.1f} s after its last failure")
            next_utc = line.get("next_probe_utc")
            if line.get("state") == "open" and next_utc:
                resting[device] = (at_s, e.at_s(next_utc))
            else:
                resting.pop(device, None)
        elif line.get("event") == "claimed" and device in resting:
            at_s, (since_s, until_s) = e.at_s(line["utc"]), resting[device]
            if at_s < until_s - 0.5 and _invocation(e, since_s) == _invocation(e, at_s):
                broken.append(f"{line['run_id']} was claimed {until_s - at_s:.1f} s before {device} was to be probed")
    return broken, f"{opened} times down, {probes} failed probes, {after_restart} of them first thing after a restart"


def nothing_finished_is_measured_twice(e: Evidence) -> tuple[list[str], str]:
    broken = []
    for name, point in e.points.items():
        if point["kind"] in FAILS:
            continue
        runs = e.runs_of(point["run_id"])
        for one, other in pairwise([one for one in runs if one.complete]):
            if not e.deadly(one, one.start_s, other.start_s):
                broken.append(f"{name} ran to its end as attempt {one.n} and as {other.n}, nothing had destroyed it")
        record = e.record_of(name)
        if not record:
            continue
        published_s = e.published_s(point["device"], point["run_id"])
        broken += [f"{name} was started after its record was there" for one in runs if one.start_s > published_s + 0.1]
        metrics, last = record.get("metrics", {}), max((a["n"] for a in record.get("attempts", ())), default=0)
        if metrics.get("value") != point["value"]:
            broken.append(f"{name}: the record says {metrics.get('value')}, it printed {point['value']}")
        if not any(one.complete and one.n == last and one.start_ns == metrics.get("start_ns") for one in runs):
            broken.append(f"{name}: its record is of no run that was seen to end")
    superseded = e.root / "superseded"
    if superseded.exists():  # a failed result may give way to a hole, and lies there then
        broken += [
            f"an ok record was replaced: {path.name}"
            for path in superseded.rglob("*.json")
            if json.loads(path.read_bytes())["status"] == "ok"
        ]
    broken += [f"left on {host}: {' '.join(left)}" for host, left in e.left.items() if left]
    broken += [
        f"{one.run} left a process on {one.host} that lived when {other.run} started"
        for host in e.settings["hosts"]
        for one, other in _overlaps([one for one in e.executions if one.host == host])
        if one.left
    ]
    killed = sum(one["code"] == -9 for one in e.invocations)
    taken = sum(line.get("event") == "adopted" for line in e.journal)
    return broken, f"{killed} of {len(e.invocations)} controllers killed, {taken} runs taken over, nothing left behind"


def a_lost_link_loses_nothing(e: Evidence) -> tuple[list[str], str]:
    """A run that was cut short was cut short by something that kills."""
    broken, cut = [], 0
    runs = [one for one in e.executions if not one.left]
    for one in runs:
        if not one.complete:
            cut += 1
            if not e.deadly(one, one.start_s, one.last_s + 2.0):
                broken.append(
                    f"attempt {one.n} of {one.run} on {one.host} died at {one.last_s:.1f} s of no deadly fault"
                )
    met = [fault for fault in e.faults if fault.kind in LINK_FAULTS and fault.hit]
    survived = sum(
        one.complete
        and any(
            fault.host in (one.host, one.node, "cluster") and one.start_s < fault.start_s < one.last_s for fault in met
        )
        for one in runs
    )
    back = sum(line.get("event") == "reconnected" for line in e.ledger)
    return broken, f"{survived} runs outlived a fault of their link, {back} reconnected; {cut} were killed for real"


def one_run_at_a_time(e: Evidence) -> tuple[list[str], str]:
    broken, count = [], 0
    for host in e.settings["hosts"]:
        here = [one for one in e.executions if one.host == host]
        count += len(here)
        for one, other in _overlaps(here):
            if (one.run_id, one.n) != (other.run_id, other.n):  # a run and what it leaves are one
                broken.append(
                    f"{one.run}#{one.n} and {other.run}#{other.n} on {host}, for {one.last_s - other.start_s:.3f} s"
                )
    proofs = Counter[str]()
    for line in e.ledger:
        if line["event"] in ("repeat", "preempted") and "cause" in line.get("evidence", {}):
            proofs[line["evidence"].get("proof", "none")] += 1
    if "none" in proofs:
        broken.append(f"{proofs['none']} attempts in pods were repeated, and nothing says that they were over")
    forgotten = [
        one
        for one in e.executions
        for fault in e.faults
        if fault.forgot_s is not None and fault.host == one.node and one.start_s < fault.forgot_s < one.last_s
    ]
    told = f"; lost pods proven over by {', '.join(f'{n} {proof}' for proof, n in proofs.most_common())}"
    told += f"; {len(forgotten)} runs went on in a pod that the cluster had forgotten"
    return broken, f"{count} executions, 0.000 s of overlap{told if proofs else ''}"


def times_are_utc(e: Evidence) -> tuple[list[str], str]:
    broken, count = [], 0
    schedule = e.root / "schedule.json"
    logs = [*e.journal, *e.ledger]
    documents: list[tuple[str, Any]] = [(f"{key[0]}/{key[1]}", record) for key, record in e.records.items()]
    documents += [(str(line.get("event")), line) for line in logs]
    if schedule.exists():
        documents.append(("schedule.json", json.loads(schedule.read_text())))
    for where, document in documents:
        for key, value in _pairs(document):
            if (key == "utc" or key.endswith("_utc")) and isinstance(value, str):
                count += 1
                if not UTC.fullmatch(value):
                    broken.append(f"{where}: {key} is {value}")
    return broken, f"{count} times on disk; clocks were not set here, tests/core and the reports B12, B13 do that"


def what_is_missing_is_absent(e: Evidence) -> tuple[list[str], str]:
    broken, numbers = [], 0
    for (device, run_id), record in e.records.items():
        where = f"{device}/{run_id}"
        broken += [f"{where}: {key} is null" for key, value in _pairs(record) if value is None and key != "predecessor"]
        metrics = record.get("metrics", {})
        for key, value in metrics.items():
            if isinstance(value, (int, float)):
                numbers += 1
                if not math.isfinite(value) or (value == 0 and key in ("value", "start_ns")):
                    broken.append(f"{where}: {key} is {value}")
        if record.get("failure", {}).get("class") == "not_attempted" and ("value" in metrics or "duration_s" in record):
            broken.append(f"{where} was never measured and has figures")
    return broken, f"{numbers} figures in {len(e.records)} records, none null, none made up"


def who_watches_is_not_in_the_way(e: Evidence) -> tuple[list[str], str]:
    watchers = sum(fault.kind == "watcher killed" for fault in e.faults)
    report = e.root / "summary" / "report.html"
    newest_s = max((e.published_s(*key) for key in e.records), default=0.0)
    broken = []
    if not report.exists() or e.wall_to_s(report.stat().st_mtime) < newest_s:
        broken.append("there is no report that is newer than the last record")
    return (
        broken,
        f"{watchers} lookers-on killed and schedule.json deleted each time; the report is newer than all records",
    )


PROMISES: list[Look] = [
    every_point_ends_as_one_thing,
    results_are_not_retried,
    repeats_are_told,
    work_stays_on_its_device,
    groups_keep_their_limit,
    a_breaker_costs_one_probe_a_cooldown,
    nothing_finished_is_measured_twice,
    a_lost_link_loses_nothing,
    one_run_at_a_time,
    times_are_utc,
    what_is_missing_is_absent,
    who_watches_is_not_in_the_way,
]


def _is_copy(record: Json) -> bool:
    return any(str(tag).startswith("failover-from:") for tag in record.get("tags", ()))


def _invocation(e: Evidence, at_s: float) -> int:
    """The last one that had begun by then."""
    return sum(one["start_s"] <= at_s for one in e.invocations)


def _overlaps(executions: list[Execution]) -> Iterator[tuple[Execution, Execution]]:
    """Pairs of which the second began while the first was alive; both in the order of their starts."""
    alive: list[Execution] = []
    for one in executions:
        alive = [other for other in alive if other.last_s > one.start_s]
        for other in alive:
            yield other, one
        alive.append(one)


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield key, below
            yield from _pairs(below)
    elif isinstance(value, list):
        for below in value:
            yield from _pairs(below)
