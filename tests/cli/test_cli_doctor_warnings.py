"""What `sidewinder doctor` says of a device that answers and is still not as one would wish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_scripted import Machine, ScriptedClient
from sidewinder import cli
from sidewinder.engine import devices
from sidewinder.transports.messages import ClockOffset

LAB = """
devices: {pi5: {host: pi5.lan}}
matrix: [{devices: pi5, backend: command, command: ["true"]}]
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    found = Machine("pi5")
    monkeypatch.setattr(devices, "agent_opener", lambda campaign, client: lambda device: ScriptedClient(found))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lab.yaml").write_text(LAB)
    return found


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, list[tuple[str, str]]]:
    assert cli.main(["doctor", "--configfile", "lab.yaml", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    found: dict[str, list[tuple[str, str]]] = {}
    for one in told["findings"]:
        if one["where"] == "pi5":
            found.setdefault(one["what"], []).append((one["verdict"], one["text"]))
    return found


def test_a_clock_that_is_far_off(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.clock = ClockOffset(-400.0, 0.002, 10)
    ((verdict, text),) = findings(capsys)["clock"]
    assert verdict == "warn"
    assert "the clock of pi5 is 400.000 s behind ours (± 0.002000 s)" in text
    assert "NTP" in text


def test_a_clock_that_is_right(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    found = findings(capsys)
    assert found["clock"] == [("ok", "+0.001000 s from ours, ± 0.000100 s")]
    assert "device" not in found


def test_a_device_that_ends_runs_at_logout(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.facts = {"logout": {"user": "bench", "unit": "session", "kills": True, "linger": False}}
    ((verdict, text),) = findings(capsys)["device"]
    assert verdict == "warn"
    assert "loginctl enable-linger bench" in text
    assert "devices.pi5.scope: systemd" in text
