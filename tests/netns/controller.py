"""A controller of lab hosts: waits that fit a test, points that witnesses measure, an engine in a thread or a process.

As a program, ``controller.py FOLDER SETTINGS``, it measures every point of a run folder's plan and prints how each
ended; ``SETTINGS`` is JSON for ``quicken``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.helpers_engine import Told, command, make_plan, record
from netns.lab_hosts import LabHost, workload
from sidewinder.engine import Engine
from sidewinder.errors import InternalError
from sidewinder.files import plan as plan_file
from sidewinder.model import Device, Plan, Policy, RetryPolicy
from sidewinder.transports import client as client_module
from sidewinder.transports import ssh_connection, ssh_target
from sidewinder.transports.client import AgentClient

POLICY = Policy(retry=RetryPolicy(max_attempts=3, backoff_s=0.1, max_backoff_s=0.5), order_by="config")

_INIT = AgentClient.__init__


class Setter(Protocol):
    def __call__(self, target: Any, name: str, value: object) -> None: ...


def quicken(
    *,
    keepalive_s: float = 0.5,
    heartbeat_s: float = 0.5,
    lease_s: float = 60.0,
    connect_s: float = 3.0,
    setter: Setter = setattr,
) -> dict[str, float]:
    """Waits for links of a test: a silent one is given up after 3 x ``keepalive_s``. A busy machine makes that happen
    for no reason now and then, which must change nothing. ``setter``: ``monkeypatch.setattr``, or for good."""
    setter(ssh_target, "KEEPALIVE_S", keepalive_s)
    setter(ssh_connection, "CONNECT_S", connect_s)
    setter(client_module, "HEARTBEAT_PATIENCE_S", 3.0)

    def made(self: AgentClient, *args: Any, **more: Any) -> None:
        _INIT(self, *args, **{**more, "heartbeat_s": heartbeat_s, "lease_s": lease_s})

    setter(AgentClient, "__init__", made)
    return {"keepalive_s": keepalive_s, "heartbeat_s": heartbeat_s, "lease_s": lease_s, "connect_s": connect_s}


def witnessed(device: str, run: str, how_long: float | str = "hold", **more: Any) -> dict[str, Any]:
    """The fields of a point that is called ``run`` in the witness of its host."""
    metrics = {"start_ns": r'"start_ns": (\d+)', "value": r'"value": (\d+)'}
    parameters = {"run": run}
    return command(*workload("{run}", how_long), metrics=metrics, device=device, parameters=parameters, **more)


class Sweep:
    """One invocation: the points of ``plan`` in an engine of their own, what it told, what lies on disk."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.told = Told()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(root), plan)
        self.engine.submit([(str(root), run_id) for run_id in plan.points])

    @classmethod
    def of(
        cls, root: Path, points: Sequence[dict[str, Any]], devices: Sequence[Device], policy: Policy = POLICY
    ) -> Sweep:
        return cls(root, make_plan(root, points, devices=devices, policy=policy))

    def run_id(self, run: str) -> str:
        (found,) = (run_id for run_id, point in self.plan.points.items() if point.parameters.get("run") == run)
        return found

    def record(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = record(self.root, self.plan, self.run_id(run))
        return found

    def attempts(self, run: str) -> list[tuple[int, str]]:
        return [(attempt["n"], attempt["outcome"]) for attempt in self.record(run)["attempts"]]

    def outcomes(self) -> dict[str, str]:
        """How each point ended, by the name that its witness knows."""
        names = {run_id: str(point.parameters.get("run")) for run_id, point in self.plan.points.items()}
        return {names[run_id]: outcome for (_, run_id), outcome in self.told.done.items()}

    @property
    def ledger(self) -> list[dict[str, Any]]:
        path = self.root / "retries.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self) -> list[str]:
        return [line["event"] for line in self.ledger]

    def until(self, what: Callable[[], object], said: str) -> None:
        """Fails at once where the engine crashed."""
        self.told.until(lambda told: what() or told.crash is not None, said)
        if self.told.crash is not None:
            raise self.told.crash

    def until_running(self, host: LabHost, run: str, times: int = 1) -> None:
        self.until(lambda: len(host.witness.of(run)) >= times, f"{run} runs on {host.name}")

    def until_lost(self) -> None:
        self.until(lambda: "link_lost" in self.events(), "the link is lost")

    def finish(self) -> dict[str, str]:
        """Wait for all points; the engine ends clean."""
        self.told.wait(len(self.plan.points))
        assert self.engine.shutdown(20), "something was left on a device"
        return self.outcomes()

    def end(self) -> None:
        """Harmless after ``finish``."""
        with contextlib.suppress(InternalError):
            self.engine.cancel(False)
        self.engine.shutdown(5)


def main(root: str, settings: str) -> None:
    quicken(**json.loads(settings))
    sweep = Sweep(Path(root), plan_file.read(root))
    sweep.told.wait(len(sweep.plan.points))
    sweep.engine.shutdown(20)
    print(json.dumps(sweep.outcomes()))


if __name__ == "__main__":
    main(*sys.argv[1:])
