"""GPUs as `nvidia-smi` tells of them on several machines: what is told is in the record, what is not is absent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.helpers_engine import command, make_plan, run
from sidewinder.agent.gpumeter import GpuMeter
from sidewinder.agent.gpus import ask_gpus, gpu_facts, visible
from sidewinder.agent.pump import Pump
from sidewinder.files.layout import RunFolder
from sidewinder.model import Device

DATA = Path(__file__).parents[1] / "data" / "nvidia-smi"
PROGRAM = str(DATA / "nvidia-smi")
FIRST, SECOND = "GPU-5f6a1c2e-9b1d-4c7e-8f10-2a6b7c8d9e01", "GPU-a0b1c2d3-1111-4222-8333-444455556666"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Turns this machine into one of those in the data folder."""

    def machine(case: str) -> None:
        monkeypatch.setenv("NVIDIA_SMI_CASE", str(DATA / f"{case}.json"))
        monkeypatch.setenv("NVIDIA_SMI_BEGAN", str(tmp_path / "began"))
        monkeypatch.setenv("PATH", str(DATA), prepend=":")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)

    return machine


# -- facts ------------------------------------------------------------------------------------------------------------


def test_a_server_gpu_tells_everything(machine: Any) -> None:
    machine("a100")
    facts = gpu_facts({})
    assert facts["gpu"] == "NVIDIA A100-SXM4-40GB"
    assert facts["gpus"] == [
        {
            "index": 0,
            "uuid": FIRST,
            "name": "NVIDIA A100-SXM4-40GB",
            "driver": "535.104.05",
            "compute_capability": "8.0",
            "memory_total_MiB": 40960,
            "pcie_gen": 4,
            "pcie_width": 16,
            "enforced_power_limit_W": 400.0,
            "power_limit_W": 400.0,
            "ecc_mode": "Enabled",
            "mig_mode": "Disabled",
            "sm_clock_max_MHz": 1410,
            "mem_clock_max_MHz": 1215,
            "persistence_mode": "Enabled",
        }
    ]
    assert "gpus_unknown" not in facts


@pytest.mark.parametrize(
    ("case", "told", "absent"),
    [
        ("rtx4090", {"memory_total_MiB": 24564, "power_limit_W": 450.0, "ecc_mode": "Disabled"}, {"mig_mode"}),
        (
            "rtx-old-driver",
            {"driver": "440.33.01", "memory_total_MiB": 11178},
            {"compute_capability", "mig_mode", "ecc_mode"},
        ),
        ("mig", {"mig_mode": "Enabled", "memory_total_MiB": 40960}, set()),
        (
            "jetson-orin",
            {"name": "Orin (nvgpu)", "compute_capability": "8.7"},
            {"memory_total_MiB", "power_limit_W", "pcie_gen", "sm_clock_max_MHz"},
        ),
        ("lost", {"driver": "470.82.01"}, {"compute_capability", "memory_total_MiB", "power_limit_W", "ecc_mode"}),
    ],
)
def test_what_is_not_told_is_absent(case: str, told: dict[str, Any], absent: set[str], machine: Any) -> None:
    machine(case)
    (gpu,), why = ask_gpus()
    assert why is None
    assert {name: gpu.get(name) for name in told} == told
    assert not absent & set(gpu)
    assert 0 not in [value for name, value in gpu.items() if name != "index"]


@pytest.mark.parametrize(
    ("case", "word"),
    [
        ("none", "ended with 6: No devices were found"),
        ("mismatch", "ended with 18: Failed to initialize NVML: Driver/library version mismatch"),
        ("no-driver", "couldn't communicate with the NVIDIA driver"),
    ],
)
def test_why_there_is_none_is_said(case: str, word: str, machine: Any) -> None:
    machine(case)
    facts = gpu_facts({})
    assert set(facts) == {"gpus_unknown"}
    assert word in facts["gpus_unknown"]


def test_no_such_program_is_nothing_to_say() -> None:
    assert gpu_facts({}, "/nowhere/nvidia-smi") == {}


# -- which of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("0", [0]),
        ("1", [1]),
        ("1,0", [1, 0]),
        (" 0 , 1 ", [0, 1]),
        ("", []),
        ("-1", []),
        ("0,-1,1", [0]),
        ("7", []),
        ("0,0", [0]),
        (SECOND, [1]),
        ("GPU-a0b1", [1]),
        ("GPU-", []),
        (f"MIG-{SECOND}/1/0", [1]),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices(wanted: str, seen: list[int], machine: Any) -> None:
    machine("two-a100")
    found = visible(ask_gpus()[0], {"CUDA_VISIBLE_DEVICES": wanted})
    assert found is not None
    assert [gpu["index"] for gpu in found] == seen


def test_a_number_among_different_gpus_is_cuda_s_own_affair(machine: Any) -> None:
    """The fastest is its number 0, wherever it is plugged in."""
    machine("mixed")
    facts = gpu_facts({"CUDA_VISIBLE_DEVICES": "0"})
    assert "gpu" not in facts
    assert [gpu["index"] for gpu in facts["gpus"]] == [0, 1]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in facts["gpus_unknown"]
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpu_facts(ordered)["gpu"] == "NVIDIA RTX A6000"
    assert gpu_facts({"CUDA_VISIBLE_DEVICES": "GPU-22222222"})["gpu"] == "NVIDIA RTX A6000"
    assert gpu_facts({"CUDA_VISIBLE_DEVICES": "MIG-0000"}).get("gpu") is None


# -- a run ------------------------------------------------------------------------------------------------------------


def metered(case: str, environment: dict[str, str], tmp_path: Path, lines: int) -> dict[str, Any]:
    """What a meter makes of so many rounds of lines."""
    pump = Pump()
    meter = GpuMeter.start(10.0, pump, environment, power=False, argv=(PROGRAM,))
    assert meter is not None
    meter.begin()
    wanted = lines * len(json.loads((DATA / f"{case}.json").read_text())["gpus"])
    taken: list[str] = []
    take = meter.take

    def counted(line: str, now_s: float) -> None:
        taken.append(line)
        take(line, now_s)

    meter.take = counted  # type: ignore[method-assign]
    while len(taken) < wanted:
        pump.turn(5.0)
    meter.stop()
    return meter.summary()


@pytest.mark.parametrize(
    ("case", "environment", "watts", "told"),
    [
        ("a100", {}, 61.23, {"gpu_indices": [0], "gpu_temp_c_max": 34.0, "gpu_util_pct_mean": 0.0}),
        ("two-a100", {"CUDA_VISIBLE_DEVICES": "0"}, 50.0, {"gpu_indices": [0], "gpu_temp_c_max": 30.0}),
        ("two-a100", {"CUDA_VISIBLE_DEVICES": "1"}, 300.0, {"gpu_indices": [1], "gpu_temp_c_max": 71.0}),
        ("two-a100", {}, 350.0, {"gpu_indices": [0, 1], "gpu_temp_c_max": 71.0, "gpu_util_pct_mean": 49.5}),
        ("two-a100", {"CUDA_VISIBLE_DEVICES": ""}, None, {}),
        ("mixed", {}, None, {"gpu_indices": [0, 1], "gpu_temp_c_max": 80.0}),  # one of them tells no watts
        ("mixed", {"CUDA_VISIBLE_DEVICES": "1"}, None, {}),  # which one that is only CUDA knows
        ("mig", {}, 120.5, {"gpu_indices": [0]}),
        ("jetson-orin", {}, None, {"gpu_indices": [0]}),
        ("lost", {}, None, {"gpu_indices": [0]}),
    ],
)
def test_figures_are_those_of_the_gpus_that_were_seen(
    case: str, environment: dict[str, str], watts: float | None, told: dict[str, Any], machine: Any, tmp_path: Path
) -> None:
    machine(case)
    found = metered(case, environment, tmp_path, 3)
    assert {name: found.get(name) for name in told} == told
    assert found.get("gpu_power_w_mean") == (None if watts is None else pytest.approx(watts))
    assert ("gpu_energy_j" in found) == (watts is not None)
    if watts is not None:
        assert found["gpu_energy_source"] == "nvidia_smi_instantaneous"
    if case in ("mig", "jetson-orin", "lost"):
        assert "gpu_util_pct_mean" not in found
    if not told:
        assert found == {}


def measured(tmp_path: Path, device: Device) -> dict[str, dict[str, Any]]:
    """The record of one sampled point on this device, by a whole run of the engine."""
    root = tmp_path / "runs"
    script = 'touch "$NVIDIA_SMI_BEGAN"; until [ -e "$NVIDIA_SMI_BEGAN.sampled" ]; do sleep 0.02; done; echo n=7'
    if "says" in json.loads(Path(os.environ["NVIDIA_SMI_CASE"]).read_text()):
        script = "echo n=7"  # nothing is ever sampled
    fields = {"metrics": {"n": r"n=(\d)"}, "sample_hz": 10.0, "sample_power": True}
    plan = make_plan(root, [command("sh", "-c", script, device=device.id, **fields)], devices=[device])
    told = run(root, plan)
    assert set(told.done.values()) == {"ok"}
    return {
        point.device: json.loads(Path(RunFolder(str(root)).record(point.device, run_id)).read_text())
        for run_id, point in plan.points.items()
    }


def here(tmp_path: Path, name: str, **env: str) -> Device:
    return Device(name, "local", lock=name, env=env, settings={"state_dir": str(tmp_path / name)})


def test_two_devices_of_one_host_record_each_its_own_gpu(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("two-a100")
    records = {}
    for i in (0, 1):
        monkeypatch.setenv("NVIDIA_SMI_BEGAN", str(tmp_path / f"began{i}"))
        records |= measured(tmp_path / str(i), here(tmp_path, f"gpu{i}", CUDA_VISIBLE_DEVICES=str(i)))
    for i, (uuid, watts, celsius) in enumerate([(FIRST, 50.0, 30.0), (SECOND, 300.0, 71.0)]):
        device, telemetry = records[f"gpu{i}"]["device"], records[f"gpu{i}"]["telemetry"]
        assert device["gpu"] == "NVIDIA A100-SXM4-40GB"
        assert [(gpu["index"], gpu["uuid"]) for gpu in device["gpus"]] == [(i, uuid)]
        assert device["gpus"][0]["power_limit_W"] == 400.0
        assert device["gpus"][0]["memory_total_MiB"] == 40960
        assert telemetry["gpu_indices"] == [i]
        assert telemetry["gpu_temp_c_max"] == celsius
        assert telemetry["gpu_power_w_mean"] == pytest.approx(watts)


@pytest.mark.parametrize("case", ["jetson-orin", "mismatch"])
def test_a_record_without_figures_of_a_gpu_has_none(case: str, machine: Any, tmp_path: Path) -> None:
    machine(case)
    record = measured(tmp_path, here(tmp_path, "orin"))["orin"]
    assert not {name for name in record["telemetry"] if name.startswith("gpu_")} - {"gpu_indices"}
    if case == "mismatch":
        assert "gpus" not in record["device"]
        assert "version mismatch" in record["device"]["gpus_unknown"]
    else:
        assert record["device"]["gpu"] == "Orin (nvgpu)"
        assert set(record["device"]["gpus"][0]) == {"index", "uuid", "name", "driver", "compute_capability"}


# -- the driver's own counter -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library of that name."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a stand-in for the driver's library needs a C compiler: apt-get install gcc libc6-dev")
    folder = tmp_path_factory.mktemp("nvml")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(DATA / "nvml.c")], check=True)
    return folder


@pytest.mark.parametrize(
    ("env", "wanted", "joules"),
    [
        ({}, "0", 5.0),
        ({}, "1", 1000.0),
        ({}, "0,1", 1005.0),
        ({"NVML_LACKS": "1"}, "0", 5.0),
        ({"NVML_LACKS": "1"}, "0,1", None),
        ({"NVML_FALLS": "1"}, "0", None),
        ({"NVML_INIT_FAILS": "1"}, "0", None),
    ],
    ids=str,
)
def test_energy_is_the_counter_of_the_driver_where_it_has_one(
    env: dict[str, str],
    wanted: str,
    joules: float | None,
    nvml: Path,
    machine: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    machine("two-a100")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    telemetry = measured(tmp_path, here(tmp_path, "box", CUDA_VISIBLE_DEVICES=wanted))["box"]["telemetry"]
    if joules is None:
        assert telemetry.get("gpu_energy_source") in (None, "nvidia_smi_instantaneous")
        assert telemetry.get("gpu_energy_j") not in (0, 5.0, 1005.0)
    else:
        assert telemetry["gpu_energy_source"] == "nvml_energy_counter"
        assert telemetry["gpu_energy_j"] == pytest.approx(joules)
        assert telemetry["gpu_power_w_mean"] > 0
