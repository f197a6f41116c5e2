"""One device for many tests of one module: its agent is compiled once, every run has a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from agent.helpers_agent import Bench, run
from sidewinder.model import RawResult, Task
from sidewinder.transports.client import AgentClient


class Here:
    """This machine as a device, with a live client."""

    def __init__(self, runner: asyncio.Runner, bench: Bench, client: AgentClient) -> None:
        self.runner, self.bench, self.client = runner, bench, client
        self.count = 0

    def measure(self, task: Task) -> RawResult:
        self.count += 1
        return self.runner.run(run(self.client, f"run-{self.count}", task))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    with asyncio.Runner() as runner:
        bench = Bench(tmp_path_factory.mktemp("state"))
        client = runner.run(bench.client())
        yield Here(runner, bench, client)
        runner.run(bench.close())
