"""The first steps of docs/kubernetes.md as they stand there, on a real cluster, from `sidewinder init` on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from e2e.kubernetes.helpers_accounts import allowed
from e2e.kubernetes.helpers_cluster import PATIENCE_S, PROJECT, Namespace, until
from e2e.kubernetes.helpers_pods import connect
from sidewinder.model import Device
from sidewinder.transports.kubernetes_access import GET_PODS

SECTION = "## From nothing to a measured pod\n"
OURS = ("sidewinder ", "snakemake ", "cd ")  # what installs a cluster or the package was done before


def steps() -> list[tuple[str, str]]:
    """The fenced blocks of that section in order, each with its language."""
    text = (PROJECT / "docs/kubernetes.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S)


@pytest.fixture
def shell(namespace: Namespace, tmp_path: Path) -> Path:
    """A kubeconfig whose context has the test's namespace, as ``kind`` and others leave one with their own."""
    config = yaml.safe_load(Path(namespace.cluster.kubeconfig).read_text())
    for one in config["contexts"]:
        one["context"]["namespace"] = namespace.name
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    return tmp_path


def test_they_lead_to_a_measured_pod(namespace: Namespace, shell: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(shell / "kubeconfig"), "COLUMNS": "200"}
    folder, said = shell, {}
    for language, block in steps()[:3]:
        if language == "yaml":
            lab = block.replace('"python:3.11-slim"', f'"{namespace.cluster.image}"')
            (folder / block.splitlines()[0].removeprefix("# ")).write_text(lab)
            continue
        for line in (line.partition(" #")[0].strip() for line in block.splitlines()):
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
            elif line.startswith(OURS):
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=folder,
                    env=environ,
                    capture_output=True,
                    text=True,
                    timeout=2 * PATIENCE_S,
                )
                assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
                said[line] = done.stdout + done.stderr
    assert list(said) == [
        "sidewinder init lab",
        "sidewinder doctor",
        "snakemake --profile profiles/lab",
        "sidewinder devices clean",
    ]
    assert "everything is there\n" in said["sidewinder doctor"], "nothing to know of, either"
    records = [json.loads(one.read_text()) for one in (folder / "runs/first-pods/records").glob("*/*.json")]
    by_device = {record["device"]["device_id"]: record for record in records}
    assert {name: record["status"] for name, record in by_device.items()} == dict.fromkeys(
        ("local", "k8s-cpu1", "k8s-free"), "ok"
    )
    assert by_device["k8s-cpu1"]["device"]["placement"]["cpu_quota_cores"] == 1
    assert "cpu_quota_cores" not in by_device["k8s-free"]["device"]["placement"]
    assert all(record["metrics"]["seconds"] > 0 for record in records)
    assert (folder / "runs/first-pods/summary/report.html").exists()
    assert "runs/first-pods/summary/report.html" in said["snakemake --profile profiles/lab"]
    assert namespace.pod("sidewinder-k8s-cpu1") is None
    assert namespace.pod("sidewinder-k8s-free") is None


def test_an_account_that_may_only_measure(namespace: Namespace, shell: Path) -> None:
    """By the commands of the docs, except that the namespace is there and that we are kubectl."""
    (block,) = [block for _, block in steps() if "devices role" in block]
    commands = [line for line in block.splitlines() if line.strip()]
    assert [line.split()[:4] for line in commands] == [
        ["kubectl", "create", "namespace", "lab"],
        ["kubectl", "create", "serviceaccount", "bench"],
        ["sidewinder", "devices", "role", "--namespace"],
        ["kubectl", "config", "set-credentials", "bench"],
        ["kubectl", "config", "set-context", "bench"],
    ]
    assert commands[2].endswith("| kubectl apply -f -")
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = commands[2].partition(" |")[0].replace("namespace lab", f"namespace {namespace.name}")
    done = subprocess.run(["bash", "-c", printed], env=environ, capture_output=True, text=True, cwd=shell)
    namespace.api("POST", f"{namespace.path}/serviceaccounts", {"metadata": {"name": "bench"}})
    for one in yaml.safe_load_all(done.stdout):
        kind = one["kind"].lower() + "s"
        namespace.api("POST", f"/apis/{one['apiVersion']}/namespaces/{namespace.name}/{kind}", one)
    token = namespace.api("POST", f"{namespace.path}/serviceaccounts/bench/token", {"spec": {}})["status"]["token"]
    config = yaml.safe_load((shell / "kubeconfig").read_text())
    config["users"].append({"name": "bench", "user": {"token": token}})
    cluster = config["contexts"][0]["context"]["cluster"]
    bench = {"cluster": cluster, "user": "bench", "namespace": namespace.name}
    config["contexts"].append({"name": "bench", "context": bench})
    config["current-context"] = "bench"
    (shell / "kubeconfig").write_text(yaml.safe_dump(config))
    until(lambda: allowed(str(shell / "kubeconfig"), GET_PODS, namespace.name), "the API server knows the new Role")
    settings = {**namespace.device().settings, "kubeconfig": str(shell / "kubeconfig"), "context": "bench"}
    del settings["namespace"]
    assert connect(Device("k8s", "kubernetes", lock="slot", settings=settings))["namespace"] == namespace.name
