"""Promise 11: a missing measurement is absent, never zero. Unknown is its own answer, never "no".

Shown in a record, in the tables, and where a device could not look.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.helpers_engine import make_plan, only, record, run
from engine.helpers_scripted import scripted
from promises.helpers_promises import Diary, Property, campaigns, here
from sidewinder.core import events as ev
from sidewinder.core import instructions as do
from sidewinder.engine.devices import DeviceLink
from sidewinder.errors import TransportError
from sidewinder.model import AttemptId, Device
from sidewinder.report import tables
from sidewinder.testing import World
from sidewinder.transports.client import AgentClient
from sidewinder.transports.local import LocalTransport

QUICK = {"max_transport_failures": 1, "recovery_after_s": 0.01, "give_up_after_s": 0.0}


def test_what_was_never_measured_has_no_figure_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = scripted(monkeypatch, "gone")
    machines["gone"].down = True
    root = tmp_path / "runs"
    point = {"backend": "command", "command": ("true",), "device": "gone", "metrics": {"n": r"n=(\d)"}}
    plan = make_plan(root, [point], devices=[Device("gone", "ssh", **QUICK)])
    run(root, plan)
    written = record(root, plan, only(plan))
    for key in ("metrics", "samples", "telemetry", "duration_s", "clock"):
        assert not written.get(key), f"{key}: {written.get(key)}"
    (row,) = tables.points(str(root), plan).to_dict("records")
    figures = {name: value for name, value in row.items() if isinstance(value, int | float) and value == 0}
    measured = {name for name in figures if name.startswith(("metrics", "metric", "duration", "telemetry", "n"))}
    assert measured == set(), f"a zero that nobody measured: {figures}"


def test_a_program_that_prints_nothing_has_no_figure(tmp_path: Path) -> None:
    diary, root = Diary(tmp_path), tmp_path / "runs"
    point = {**diary.point("p"), "metrics": {"other": r"other=(\d)"}}
    plan = make_plan(root, [point], devices=[here(tmp_path)])
    assert set(run(root, plan).done.values()) == {"failed"}
    assert "other" not in (record(root, plan, only(plan)).get("metrics") or {})


def test_a_device_that_could_not_look_says_so(tmp_path: Path) -> None:
    """A name that the file system cannot even look up, beside one that is not there."""
    device = here(tmp_path)

    async def look() -> tuple[list[str], str]:
        client = AgentClient(LocalTransport(device), campaign="c", client_id="promise")
        await client.connect()
        link = DeviceLink(device, lambda _: client)
        try:
            seen = await client.look([str(tmp_path / "absent"), "/" + "x" * 300])
            kinds = [one.kind for one in seen]
            assert await link.first_existing([str(tmp_path / "absent")]) is None
            with pytest.raises(TransportError) as unknown:
                await link.first_existing(["/" + "x" * 300])
            return kinds, str(unknown.value)
        finally:
            await client.close()

    kinds, said = asyncio.run(look())
    assert kinds == ["absent", "unknown"]
    assert "could not look" in said


def test_a_status_that_could_not_be_asked_for_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pi = scripted(monkeypatch, "pi")["pi"]
    pi.lose, pi.refuse = ["start"], ["status", "status"]
    point = {"backend": "command", "command": ("true",), "device": "pi"}
    patient = Device("pi", "ssh", max_transport_failures=9)
    plan = make_plan(tmp_path / "runs", [point], devices=[patient])
    assert set(run(tmp_path / "runs", plan).done.values()) == {"ok"}
    assert pi.asked["status"] == 3, "asked until it could say"
    assert pi.ran == [(only(plan), 1)], "and never taken for absent meanwhile"


def test_nothing_starts_while_nobody_knows() -> None:
    with World([Device("pi", "ssh", max_transport_failures=99)]) as world:
        world.queue("p", on="pi", last_attempt=1, in_flight=True)
        for _ in range(5):
            world.expect(do.Journal, "p", n=1)
            world.happens(ev.Journaled(AttemptId("p", 1)))
            world.expect(do.AskStatus, "p", n=1)
            world.happens(ev.TransportFailed(AttemptId("p", 1), "no route to host"))
            world.nothing()
            world.advance(300.0)
        world.expect(do.Journal, "p", n=1)  # it asks again, and starts nothing


def test_in_campaigns_with_devices_that_cannot_be_asked(record_property: Property) -> None:
    campaigns(record_property, "AskStatus failed", "call failed", "Probe failed")
