"""`sidewinder devices up|down|clean` and one whole sweep by the command line, on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.kubernetes.helpers_cluster import PATIENCE_S, Namespace
from e2e.kubernetes.helpers_pods import READY_S


@pytest.fixture
def lab(namespace: Namespace, tmp_path: Path) -> Path:
    section = {**namespace.device().settings, "kind": "kubernetes"}
    config = {
        "experiment": "pods",
        "output_dir": str(tmp_path / "runs"),
        "devices": {"k8s": section, "free": {**section, "cpu": None, "memory": None}, "local": {}},
        "matrix": [
            {
                "devices": ["k8s", "free"],
                "backend": "command",
                "command": ["sh", "-c", "echo n={i}"],
                "parameters": {"i": [1, 2]},
                "metrics": {"n": r"n=(\d)"},
            }
        ],
    }
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


def sidewinder(lab: Path, *argv: str) -> tuple[int, Any, str]:
    arguments = [*argv, "--configfile", str(lab / "lab.yaml"), "--json"]
    code = f"import sys; from sidewinder.cli import main; sys.exit(main({arguments!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, cwd=lab)
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_pods_are_made_and_removed_by_hand(lab: Path, namespace: Namespace) -> None:
    code, told, said = sidewinder(lab, "devices", "up")
    assert code == 0, said
    assert sorted(one["pod"] for one in told["pods"]) == ["sidewinder-free", "sidewinder-k8s"]
    uid = namespace.pod()["metadata"]["uid"]
    assert sidewinder(lab, "devices", "up", "k8s")[0] == 0
    assert namespace.pod()["metadata"]["uid"] == uid, "what is there is used"
    code, told, _ = sidewinder(lab, "devices", "down", "k8s")
    assert (code, told["pods"][0]["removed"]) == (0, True)
    assert namespace.pod() is None
    assert sidewinder(lab, "devices", "down", "k8s")[1]["pods"][0]["removed"] is False
    stranger = namespace.make_pod("mine")
    config = yaml.safe_load((lab / "lab.yaml").read_text())
    del config["devices"]["free"]
    config["matrix"][0]["devices"] = ["k8s"]
    (lab / "lab.yaml").write_text(yaml.safe_dump(config))
    code, told, _ = sidewinder(lab, "devices", "clean")
    assert code == 0
    assert [one["pod"] for one in told["pods"]] == ["sidewinder-free"], "one that no device has any more"
    assert namespace.pod("sidewinder-free") is None
    assert namespace.pod("mine")["metadata"]["uid"] == stranger["metadata"]["uid"]
    assert "has no pod" in sidewinder(lab, "devices", "up", "local")[2]


def test_doctor_says_what_it_waits_for_and_what_to_do(lab: Path) -> None:
    """A pod that no node has room for may be waited for as long as ten minutes: nobody must think that it hangs."""
    config = yaml.safe_load((lab / "lab.yaml").read_text())
    config["devices"]["k8s"] |= {"cpu": "999", "ready_timeout_s": READY_S}
    (lab / "lab.yaml").write_text(yaml.safe_dump(config))
    code, told, said = sidewinder(lab, "doctor", "--device", "k8s")
    assert code == 1
    assert "wait  k8s: Unschedulable: 0/" in said
    (failed,) = [one["text"] for one in told["findings"] if one["verdict"] == "fail"]
    for word in ("Insufficient cpu", "Ask for less", "devices.k8s.cpu", "devices.k8s.ready_timeout_s"):
        assert word in failed


def test_a_sweep_by_snakemake(lab: Path, namespace: Namespace) -> None:
    from sidewinder import sweep

    (lab / "Snakefile").write_text(
        f"module lab:\n    snakefile: {sweep.snakefile()!r}\n    config: config\n\nuse rule * from lab\n"
    )
    argv = ["snakemake", "-s", "Snakefile", "--configfile", "lab.yaml", "--executor", "sidewinder", "--jobs", "8"]
    done = subprocess.run(argv, cwd=lab, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    records = [json.loads(path.read_text()) for path in (lab / "runs/records").glob("*/*.json")]
    assert [record["status"] for record in records] == ["ok"] * 4, [record.get("failure") for record in records]
    assert {record["device"]["pod"]["qos"] for record in records} == {"Guaranteed", "BestEffort"}
    assert namespace.pod()["status"]["phase"] == "Running", "kept for the next sweep, until it is idle"
