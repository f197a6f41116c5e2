"""What `sidewinder doctor` says of the machine behind a device: another device's, or one with GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.helpers_ssh import Sshd, needs_sshd
from sidewinder import cli

GPUS = Path(__file__).parents[1] / "data" / "nvidia-smi"


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """``doctor(devices)``: its findings about these, and what it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def doctor(devices: dict[str, Any]) -> list[dict[str, str]]:
        block = {"backend": "command", "devices": list(devices), "command": ["true"]}
        lab = {"experiment": "e", "devices": devices, "matrix": [block]}
        Path("lab.yaml").write_text(yaml.safe_dump(lab))
        cli.main(["doctor", "--configfile", "lab.yaml", "--json"])
        findings: list[dict[str, str]] = json.loads(capsys.readouterr().out)["findings"]
        cli.main(["doctor", "--configfile", "lab.yaml"])
        printed = capsys.readouterr().out
        assert all(finding["text"] in printed for finding in findings if finding["what"] in ("gpu", "turns"))
        return findings

    return doctor


@needs_sshd
def test_one_machine_under_two_names(tmp_path: Path, doctor: Any) -> None:
    server = Sshd(tmp_path / "host").start()
    try:
        known = tmp_path / "known"
        known.write_text(f"[localhost]:{server.port} {server.public_host_key()}\n")
        devices = {
            "pi5": server.settings(),
            "pi5-again": server.settings(host="localhost", known_hosts=str(known)),
        }
        (same,) = [finding for finding in doctor(devices) if "SAME MACHINE" in finding["text"]]
        assert same["verdict"] == "warn"
        assert same["where"] == "pi5, pi5-again"
        assert "resource_group" in same["text"]
        grouped = {name: {**settings, "resource_group": "box"} for name, settings in devices.items()}
        assert not [finding for finding in doctor(grouped) if "SAME MACHINE" in finding["text"]]
    finally:
        server.stop()


def test_gpus_that_a_run_would_see(doctor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(GPUS), prepend=":")
    monkeypatch.setenv("NVIDIA_SMI_CASE", str(GPUS / "two-a100.json"))
    findings = doctor({"gpu1": {"kind": "local", "env": {"CUDA_VISIBLE_DEVICES": "1"}}})
    (gpu,) = [finding for finding in findings if finding["what"] == "gpu"]
    assert gpu["verdict"] == "ok"
    assert gpu["text"] == "NVIDIA A100-SXM4-40GB, index 1, 40960 MiB, limit 400 W, driver 535.104.05"


def test_a_gpu_that_does_not_tell(doctor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(GPUS), prepend=":")
    monkeypatch.setenv("NVIDIA_SMI_CASE", str(GPUS / "mismatch.json"))
    (gpu,) = [finding for finding in doctor({"local": {}}) if finding["what"] == "gpu"]
    assert gpu["verdict"] == "warn"
    assert "Driver/library version mismatch" in gpu["text"]
