"""A client of a device that forgets: what its "absent" means, and that its way there may know how a boot ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agent.helpers_agent import Bench, drive, ended, sh
from sidewinder.model import Device, Failure, FailureClass
from sidewinder.transports.client import AgentClient
from sidewinder.transports.local import LocalTransport
from sidewinder.transports.messages import Status

EVICTED = Failure(FailureClass.PREEMPTED, "it was evicted", {"cause": "evicted", "proof": "container"})


class PodTransport(LocalTransport):
    """This machine in the place of a pod: its folder is lost with each boot, and how that one ended is known."""

    def __init__(self, state: Path) -> None:
        super().__init__(Device("pod", "local"), state_dir=str(state), boot_id="life-1")
        self.deaths: dict[str, Failure] = {}
        self.told: list[str] = []

    def ran_in(self, boot: str) -> None:
        self.told.append(boot)

    async def death_of(self, boot: str) -> Failure | None:
        return self.deaths.get(boot)


async def pod_client(bench: Bench) -> tuple[AgentClient, PodTransport]:
    transport = PodTransport(bench.state)
    client = AgentClient(transport, campaign="campaign", client_id="controller")
    bench.clients.append(client)
    await client.connect()
    return client, transport


async def made_anew(client: AgentClient, transport: PodTransport, bench: Bench, *, keeps: bool = False) -> None:
    await client.close()
    if not keeps:
        shutil.rmtree(bench.state)
    transport.agent_options["boot_id"] = "life-2"
    transport.deaths["life-1"] = EVICTED
    await client.connect()


@pytest.mark.parametrize("keeps", [False, True], ids=["forgets", "keeps its volume"])
def test_what_ran_in_another_life_is_lost_and_it_is_known_how(tmp_path: Path, keeps: bool) -> None:
    async def body(bench: Bench) -> None:
        client, transport = await pod_client(bench)
        await client.start("r", 1, sh("exec sleep 1000"))
        assert client.boot_of("r", 1) == client.boot_of("r", 2) == "life-1"
        assert await client.death_of("r", 1) is None, "it runs"
        await made_anew(client, transport, bench, keeps=keeps)
        assert await client.status("r", 1) == Status("lost", "rebooted", 1, EVICTED)
        assert await ended(client, "r") == Status("lost", "rebooted", 1, EVICTED)
        assert await client.death_of("r", 1) == EVICTED
        assert (client.boot_of("r", 1), client.boot_of("r", 2)) == ("life-1", "life-2")
        assert (await client.status("r", 2)).state == "absent", "what never began is not lost"

    drive(tmp_path / "state", body)


def test_the_controller_before_has_told_of_it(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client, transport = await pod_client(bench)
        client.began_in("r", 1, "life-0")
        assert transport.told == ["life-0"]
        assert client.boot_of("r", 1) == "life-0"
        assert await client.status("r", 1) == Status("lost", "rebooted", 1, None), "how it ended nobody knows"
        client.began_in("q", 1, "life-1")
        assert (await client.status("q", 1)).state == "absent", "in this life: it never came here"

    drive(tmp_path / "state", body)


def test_a_run_that_is_met_is_of_the_life_that_is_there(tmp_path: Path) -> None:
    """Its journal may be a claim behind."""

    async def body(bench: Bench) -> None:
        client, _ = await pod_client(bench)
        await client.start("r", 1, sh("exec sleep 1000"))
        other, _ = await pod_client(bench)
        other.began_in("r", 1, "life-0")
        assert (await other.status("r", 1)).state == "running"
        assert other.boot_of("r", 1) == "life-1"

    drive(tmp_path / "state", body)


def test_a_machine_remembers_by_itself(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("exec sleep 1000"))
        assert client.boot_of("r", 1) is None, "nothing for the journal"
        assert await client.death_of("r", 1) is None
        assert await client.death_in("any") is None

    drive(tmp_path / "state", body)


def test_of_a_device_that_is_not_connected_no_boot_is_known(tmp_path: Path) -> None:
    """It may be another one when it is."""

    async def body(bench: Bench) -> None:
        client, _ = await pod_client(bench)
        await client.close()
        assert client.boot_of("r", 1) is None

    drive(tmp_path / "state", body)
