"""Promise 4: work does not move between devices, except where the lab declares it (``failover_to``), and then under a
new run id and a ``failover-from:`` tag.

Shown with a device that is gone beside one that is idle.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.helpers_engine import make_plan, only, record, run
from engine.helpers_scripted import scripted
from promises.helpers_promises import Property, campaigns, records
from sidewinder.model import Device

GONE = Device("gone", "ssh", max_transport_failures=1, recovery_after_s=0.01, give_up_after_s=0.0)
IDLE = Device("idle", "ssh")
POINT = {"backend": "command", "command": ("true",), "device": "gone"}


def test_nobody_else_measures_what_was_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = scripted(monkeypatch, "gone", "idle")
    machines["gone"].down = True
    plan = make_plan(tmp_path / "runs", [POINT], devices=[GONE, IDLE])
    assert set(run(tmp_path / "runs", plan).done.values()) == {"hole"}
    assert machines["idle"].ran == []
    assert set(records(tmp_path / "runs")) == {only(plan)}


def test_where_it_is_declared_a_copy_goes_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, machines = tmp_path / "runs", scripted(monkeypatch, "gone", "idle")
    machines["gone"].down = True
    plan = make_plan(root, [POINT], devices=[replace(GONE, failover_to=("idle",)), IDLE])
    assert set(run(root, plan).done.values()) == {"hole"}, "its own device has not measured it"
    ((copy_id, _),) = machines["idle"].ran
    assert copy_id != only(plan)
    assert record(root, plan, only(plan))["moved_to"] == copy_id
    copy = records(root)[copy_id]
    assert "failover-from:gone" in copy["tags"]
    assert (copy["status"], copy["identity"]["failover_from"], copy["device"]["device_id"]) == ("ok", "gone", "idle")


def test_in_campaigns_with_declared_failovers(record_property: Property) -> None:
    campaigns(record_property, "moved", "Move refused")
