"""Machines behind an agent client that does what a test says, so that a device can be down, unfit or lose an answer.

``Machine`` is the truth: what ran on it, and how often each thing was asked. ``scripted(monkeypatch, machines)`` puts
them in the place of real ones for every engine that the test makes.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from sidewinder.engine import devices, session
from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import Output, RawResult
from sidewinder.transports.messages import ClockOffset, Executed, Started, Status

NOTHING = Output(b"", b"", 0)


class Machine:
    def __init__(self, name):
        self.name = name
        self.down = False  # nothing gets through
        self.unfit = None  # a sentence: the agent cannot be had
        self.lose = []  # ops whose next answer is lost after the machine has acted
        self.refuse = []  # ops that never reach the machine
        self.returncode = 0
        self.free_kib = 1 << 20
        self.clock = ClockOffset(0.001, 0.0001, 10)
        self.facts = {"logical_cores": 1}
        self.asked = Counter()
        self.ran = []  # (run id, n) in the order of their starts
        self.results = {}  # (run id, n) -> raw result, until it is acknowledged
        self.hold = set()  # run ids that do not end by themselves
        self.on = {}  # op -> called before anything else happens, with run id and n

    def meet(self, op, *what):
        self.asked[op] += 1
        if op in self.on:
            self.on[op](*what)
        if self.down:
            raise TransportError(f"{self.name}: no route to host")
        if self.unfit:
            raise DeviceFault(f"{self.name}: {self.unfit}")
        if op in self.refuse:
            self.refuse.remove(op)
            raise TransportError(f"{self.name}: connection refused")

    def answer(self, op, value):
        if op in self.lose:
            self.lose.remove(op)
            raise TransportError(f"{self.name}: connection reset before the answer to {op}")
        return value


class ScriptedClient:
    lease_s = 0.0  # a lost link is told to the core at once

    def __init__(self, machine):
        self.machine = machine
        self.connected = False
        self.transport = self
        self._hello = None

    def boot_of(self, run_id, n):
        """None: a machine remembers what ran in an earlier boot."""

    async def death_in(self, boot):
        """Nor does anybody know of it what the machine does not."""

    async def death_of(self, run_id, n):
        """Nobody but the machine knows."""

    async def connect(self):
        self.machine.meet("connect")
        if not self.connected:
            self.connected = True
            name = self.machine.name
            self._hello = SimpleNamespace(
                python="3.11.2", boot_id=name, node=name, state_dir="/x", facts=self.machine.facts
            )
        return self._hello

    async def close(self):
        self.connected = False

    async def clock(self, probes):
        self.machine.meet("clock")
        return self.machine.clock

    @property
    def hello(self):
        return self._hello

    async def execute(self, argv, *, stdin=b"", timeout_s=60.0, env=None):
        """Only ``df`` is asked for: a probe."""
        self.machine.meet("probe")
        text = f"Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 9 9 {self.machine.free_kib} 9% /\n"
        return Executed(0, text.encode(), b"")

    async def look(self, paths):
        self.machine.meet("look")
        return []

    async def status(self, run_id, n):
        machine = self.machine
        machine.meet("status", run_id, n)
        highest = max((m for r, m in machine.ran if r == run_id), default=0)
        if (run_id, n) in machine.results:
            return machine.answer("status", Status("finished", max_attempt=highest))
        known = (run_id, n) in machine.ran
        return machine.answer("status", Status("running" if known else "absent", max_attempt=highest))

    async def start(self, run_id, n, task, slot=0):
        machine = self.machine
        machine.meet("start", run_id, n)
        if (run_id, n) in machine.ran:
            return machine.answer("start", Started("exists", state="finished"))
        machine.ran.append((run_id, n))
        if run_id not in machine.hold:
            machine.results[run_id, n] = RawResult("done", machine.returncode, 0.1, NOTHING, NOTHING)
        return machine.answer("start", Started("started"))

    async def wait(self, run_id, n):
        self.machine.meet("wait", run_id, n)
        return self.machine.answer("wait", Status("finished"))

    async def fetch(self, run_id, n):
        self.machine.meet("fetch", run_id, n)
        return self.machine.answer("fetch", self.machine.results[run_id, n])

    async def ack(self, run_id, n):
        self.machine.meet("ack", run_id, n)
        self.machine.results.pop((run_id, n), None)

    async def stop(self, run_id, n, *, wait_s=0.0):
        self.machine.meet("stop", run_id, n)
        return True


def scripted(monkeypatch, *names):
    """Machines by name, in the place of all devices."""
    machines = {name: Machine(name) for name in names}

    def opener(campaign, client_id):
        return lambda device: ScriptedClient(machines[device.id])

    assert session.agent_opener is devices.agent_opener
    monkeypatch.setattr(session, "agent_opener", opener)
    return machines
