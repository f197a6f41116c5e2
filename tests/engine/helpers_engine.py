"""A lab in a temporary folder, and callbacks that remember what they were told."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from sidewinder import ids
from sidewinder.engine import Engine
from sidewinder.files import plan as plan_file
from sidewinder.model import Device, Lab, Plan, Point, Policy, RetryPolicy

WAIT_S = 60.0
LOCAL = Device("local", "local")

QUICK = Policy(retry=RetryPolicy(backoff_s=0.01, max_backoff_s=0.05))


def make_plan(root, points, *, devices=(LOCAL,), policy=QUICK, accept=None) -> Plan:
    """``points``: mappings of Point's fields; device `local` and backend `command` unless they say otherwise."""
    by_id = {device.id: device for device in devices}
    made = {}
    for fields in points:
        fields = {"experiment": "e", "device": "local", "backend": "command", "mode": "run", **fields}
        point = ids.with_run_id(Point(run_id="", **fields), by_id[fields["device"]])
        made[point.run_id] = point
    lab = Lab("e", str(root), by_id, policy=policy, accept=accept or {})
    return plan_file.publish(str(root), Plan(lab, made))


def command(*argv, **more):
    return {"command": argv, **more}


def noops(count, **more):
    return [{"backend": "noop", "mode": "noop", "parameters": {"i": i}, **more} for i in range(count)]


class Told:
    """Callbacks of one engine; ``wait`` returns when so many keys are done, or raises what crashed the engine."""

    def __init__(self):
        self.done = {}
        self.failures = {}
        self.started = []
        self.events = []
        self.crash = None
        self.threads = set()
        self._changed = threading.Condition()

    def on_started(self, key, attempt):
        with self._changed:
            self.started.append((key, attempt))
            self._changed.notify_all()

    def on_done(self, key, outcome, failure):
        with self._changed:
            assert key not in self.done, f"{key} was reported twice"
            self.done[key] = outcome
            self.failures[key] = failure
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def on_event(self, event):
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def on_crash(self, error):
        with self._changed:
            self.crash = error
            self._changed.notify_all()

    def until(self, condition, what, limit_s=WAIT_S):
        """Waits for callbacks, and for files too: those notify nobody, so it looks again now and then."""
        end = time.monotonic() + limit_s
        with self._changed:
            while not condition(self):
                assert time.monotonic() < end, f"never: {what}; done: {self.done}"
                self._changed.wait(0.02)

    def wait(self, count, limit_s=WAIT_S):
        self.until(lambda told: len(told.done) >= count or told.crash is not None, f"{count} done", limit_s)
        if self.crash is not None:
            raise self.crash

    def kinds(self):
        return [event["kind"] for event in self.events]


def run(root, plan, run_ids=None, *, forced=(), told=None) -> Told:
    """All points (or these) of one lab through an engine of its own."""
    told = told or Told()
    engine = Engine(told)
    engine.add_lab(str(root), plan, forced)
    keys = [(str(root), run_id) for run_id in (plan.points if run_ids is None else run_ids)]
    engine.submit(keys)
    try:
        told.wait(len(keys))
    finally:
        clean = engine.shutdown(10)
    assert clean
    return told


def record(root, plan, run_id) -> dict:
    return json.loads(Path(root, "records", plan.points[run_id].device, f"{run_id}.json").read_text())


def only(plan) -> str:
    (run_id,) = plan.points
    return run_id
