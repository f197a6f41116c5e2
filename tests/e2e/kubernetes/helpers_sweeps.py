"""A sweep in pods: an engine and what it told, runs that can be held and let go, and looks into their pods."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace, until
from engine.helpers_engine import Told, command, only, record
from sidewinder.engine import Engine
from sidewinder.model import Device, Plan, Policy, RetryPolicy
from sidewinder.transports import kubernetes_exec
from sidewinder.transports.kubernetes_cluster import Cluster
from sidewinder.transports.kubernetes_errors import Refused

POLICY = Policy(retry=RetryPolicy(backoff_s=1.0, max_backoff_s=3.0, max_attempts=5))
# A run that says by a file that it began, and goes on until another file is there; both on the volume of the pod.
HELD = (
    "import os, time\n"
    "open('/sidewinder/began', 'a').write('x')\n"
    "while not os.path.exists('/sidewinder/go'): time.sleep(0.05)\n"
    "print('n=1')\n"
)


class Sweep:
    """One engine and what it told."""

    def __init__(self, root: Path, plan: Plan, *, now: int | None = None) -> None:
        """``now``: how many points are submitted at once; ``submit`` does the others."""
        self.root, self.plan, self.told = root, plan, Told()
        self.engine = Engine(self.told)
        self.engine.add_lab(str(root), plan)
        self._left = [(str(root), run_id) for run_id in plan.points]
        self.submit(len(self._left) if now is None else now)

    def submit(self, count: int) -> None:
        """So many of the points that are left."""
        self.engine.submit(self._left[:count])
        del self._left[:count]

    def wait(self) -> dict[str, str]:
        def is_over() -> bool:
            return len(self.told.done) == len(self.plan.points) or self.told.crash is not None

        until(is_over, f"all are done; told: {self.told.events[-8:]}", 2 * PATIENCE_S)
        if self.told.crash is not None:
            raise self.told.crash
        assert self.engine.shutdown(30)
        return {run_id: outcome for (_, run_id), outcome in self.told.done.items()}

    def until_begun(self) -> None:
        until(lambda: self.told.started, f"the point runs; told: {self.told.events[-8:]}")

    def until_said(self, word: str) -> None:
        until(lambda: any(word in json.dumps(event) for event in self.told.events), f"{word}: {self.told.events[-8:]}")

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = record(self.root, self.plan, only(self.plan))
        return found

    @property
    def attempts(self) -> list[tuple[int, str]]:
        return [(attempt["n"], attempt["outcome"]) for attempt in self.record["attempts"]]

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.root / "retries.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def ledger(self) -> list[str]:
        return [line["event"] for line in self.lines]


Begin = Callable[..., Sweep]


def held(device: Device) -> dict[str, Any]:
    return command("python3", "-c", HELD, metrics={"n": r"n=(\d)"}, device=device.id)


def inside(namespace: Namespace, code: str, name: str = "sidewinder-k8s") -> str:
    """What a person's exec into the pod prints."""

    async def ask() -> str:
        cluster = Cluster(namespace.cluster.kubeconfig, None)
        try:
            path = f"{namespace.path}/pods/{name}"
            _, out = await kubernetes_exec.run(cluster, path, "agent", ["python3", "-c", code])
            return out.decode()
        except Refused:  # no container runs in it just now
            return ""
        finally:
            await cluster.close()

    return asyncio.run(ask())


def let_go(namespace: Namespace) -> None:
    until(lambda: inside(namespace, "open('/sidewinder/go', 'w'); print('gone')"), "it is let go")


def begun(namespace: Namespace, name: str = "sidewinder-k8s") -> int:
    code = "import os;p='/sidewinder/began';print(open(p).read() if os.path.exists(p) else '')"
    return len(inside(namespace, code, name).strip())
