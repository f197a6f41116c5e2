"""A preparation on a made-up machine: set, verified, put back; refused by name where an axis needs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent.helpers_agent import Bench, drive, ended, eventually, run, sh, written
from sidewinder.agent.prepare import Preparation, undo_after_kill


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two cpufreq policies with governors, and swap in use."""
    root = tmp_path / "root"
    for policy in ("policy0", "policy4"):
        folder = root / "sys/devices/system/cpu/cpufreq" / policy
        folder.mkdir(parents=True)
        for name, value in {
            "scaling_governor": "ondemand",
            "scaling_available_governors": "ondemand performance powersave",
            "cpuinfo_min_freq": "600000",
            "cpuinfo_max_freq": "2400000",
            "scaling_min_freq": "600000",
            "scaling_max_freq": "1500000",
        }.items():
            (folder / name).write_text(value + "\n")
    (root / "proc/sys/vm").mkdir(parents=True)
    (root / "proc/sys/vm/drop_caches").write_text("0")
    return root


def values(root: Path, name: str) -> list[str]:
    return [path.read_text().strip() for path in sorted(root.glob(f"sys/devices/system/cpu/cpufreq/*/{name}"))]


def prepared(root: Path, wanted: dict[str, Any], required: tuple[str, ...] = ()) -> Preparation:
    preparation = Preparation(str(root), str(root), lambda: None, lambda _seconds: None)
    preparation.apply(wanted, required)
    return preparation


def test_governor_is_set_everywhere_and_put_back(machine: Path) -> None:
    preparation = prepared(machine, {"governor": "performance"}, ("governor",))
    assert values(machine, "scaling_governor") == ["performance"] * 2
    assert preparation.refusal() is None
    assert preparation.steps["governor"]["from"] == {"policy0": "ondemand", "policy4": "ondemand"}
    preparation.restore()
    assert values(machine, "scaling_governor") == ["ondemand"] * 2
    assert preparation.report()["restored"] is True
    assert not (machine / "restore.json").exists()


def test_restore_governor_false_leaves_it(machine: Path) -> None:
    preparation = prepared(machine, {"governor": "performance", "restore_governor": False})
    preparation.restore()
    assert values(machine, "scaling_governor") == ["performance"] * 2


def test_frequency_is_pinned_from_both_sides_and_put_back(machine: Path) -> None:
    preparation = prepared(machine, {"freq_khz": 2_000_000})
    assert values(machine, "scaling_min_freq") == values(machine, "scaling_max_freq") == ["2000000"] * 2
    preparation.restore()
    assert values(machine, "scaling_min_freq") == ["600000"] * 2
    assert values(machine, "scaling_max_freq") == ["1500000"] * 2


@pytest.mark.parametrize(
    ("wanted", "axis", "reason"),
    [
        ({"governor": "turbo"}, "governor", "not offered"),
        ({"freq_khz": 5_000_000}, "freq_khz", "outside of 600000 to 2400000"),
        ({}, "governor", "does not say its value"),
    ],
)
def test_an_axis_that_cannot_be_applied_is_refused_by_name(
    machine: Path, wanted: dict[str, Any], axis: str, reason: str
) -> None:
    refusal = prepared(machine, wanted, (axis,)).refusal()
    assert refusal is not None
    assert refusal.startswith(axis)
    assert reason in refusal
    assert values(machine, "scaling_governor") == ["ondemand"] * 2


def test_a_machine_without_frequency_control_warns_or_refuses(tmp_path: Path) -> None:
    assert prepared(tmp_path, {"governor": "performance"}).refusal() is None
    assert "no cpufreq" in prepared(tmp_path, {"governor": "performance"}).report()["warnings"][0]
    assert "no cpufreq" in str(prepared(tmp_path, {"governor": "performance"}, ("governor",)).refusal())


def test_a_setting_that_does_not_stick_is_not_believed(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidewinder.agent.prepare.write_setting", lambda *_args: None)
    refusal = prepared(machine, {"governor": "performance"}, ("governor",)).refusal()
    assert "the device kept 'ondemand'" in str(refusal)


def test_caches_and_settling(machine: Path) -> None:
    waited: list[float] = []
    preparation = Preparation(str(machine), str(machine), lambda: None, waited.append)
    preparation.apply({"drop_caches": True, "settle_s": 2.5, "reset_swap": True}, ())
    assert (machine / "proc/sys/vm/drop_caches").read_text() == "3"
    assert waited == [2.5]
    assert preparation.report()["warnings"] == ["reset_swap not applied: this device has no swap"]


def test_what_a_killed_runner_left_is_put_back_by_stop(machine: Path) -> None:
    prepared(machine, {"governor": "performance"})  # and then kill -9: no restore()
    assert undo_after_kill(str(machine)) is True
    assert values(machine, "scaling_governor") == ["ondemand"] * 2
    assert undo_after_kill(str(machine)) is None


def test_a_refused_run_never_runs_and_is_put_back(tmp_path: Path, machine: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        task = sh("touch ran", prepare={"governor": "performance", "freq_khz": 1}, require=("governor", "freq_khz"))
        raw = await run(client, "r", task)
        assert (raw.state, raw.error) == ("refused", "axis_not_applied")
        assert "freq_khz" in str(raw.detail)
        assert values(machine, "scaling_governor") == ["ondemand"] * 2
        assert raw.evidence["prepare"]["steps"]["governor"]["ok"] is True

    drive(tmp_path / "state", body, root=str(machine))


def test_a_run_that_timed_out_is_put_back_before_its_end_is_told(tmp_path: Path, machine: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        task = sh("exec sleep 1000", prepare={"governor": "performance"}, timeout_s=0.1, grace_s=0.1)
        raw = await run(client, "r", task)
        assert raw.state == "timeout"
        assert raw.evidence["prepare"]["restored"] is True
        assert values(machine, "scaling_governor") == ["ondemand"] * 2

    drive(tmp_path / "state", body, root=str(machine))


def test_a_stopped_run_is_put_back(tmp_path: Path, machine: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("exec sleep 1000", prepare={"governor": "performance"}))
        await eventually(lambda: written(bench.record("r") / "proc.json"))
        assert values(machine, "scaling_governor") == ["performance"] * 2
        undo = json.loads((bench.record("r") / "restore.json").read_text())
        assert sorted(undo.values()) == ["ondemand"] * 2
        assert await client.stop("r", 1)
        assert values(machine, "scaling_governor") == ["ondemand"] * 2
        assert (await ended(client, "r")).state == "finished"

    drive(tmp_path / "state", body, root=str(machine))


def test_settling_ends_when_told_to(tmp_path: Path) -> None:
    async def body(bench: Bench) -> None:
        client = await bench.client()
        await client.start("r", 1, sh("touch ran", prepare={"settle_s": 1000}))
        assert await client.stop("r", 1)
        assert (await client.fetch("r", 1)).state == "stopped"

    drive(tmp_path, body)
