"""The pipeline of the docs on a cluster: ordinary rules in pods, points here and in a pod, in one invocation."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.kubernetes.helpers_cluster import PROJECT, Namespace, until
from e2e.kubernetes.helpers_handover import shared, snakemake_image
from plugin.helpers_plugin import COMMON, OURS, Snakemake

LIMIT_S = 300.0
BAD = """
rule bad:
    output:
        "bad.txt",
    shell:
        "echo no luck in this pod >&2; exit 3"
"""


@pytest.fixture
def snakemake(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Snakemake]:
    monkeypatch.setenv("KUBECONFIG", namespace.cluster.kubeconfig)  # read when the other plugin is imported
    one = Snakemake()
    yield one
    one.close()


def in_pods(namespace: Namespace, claim: str, image: str, folder: Path) -> list[str]:
    return [
        *("--sidewinder-ordinary-executor", "kubernetes", "--container-image", image),
        *("--sidewinder-ordinary-python", "python3"),  # Debian has no `python`
        *("--kubernetes-namespace", namespace.name, "--kubernetes-persistent-volumes", f"{claim}:{folder}"),
        *("--kubernetes-cpu-scalar", "0.1", "--seconds-between-status-checks", "1"),
    ]


def left(namespace: Namespace) -> dict[str, list[str]]:
    """What the other plugin made and nobody is deleting."""
    found = {
        "jobs": namespace.api("GET", f"/apis/batch/v1/namespaces/{namespace.name}/jobs"),
        "secrets": namespace.api("GET", f"{namespace.path}/secrets"),
    }
    return {
        kind: [one["metadata"]["name"] for one in listed["items"] if "deletionTimestamp" not in one["metadata"]]
        for kind, listed in found.items()
    }


def test_a_pipeline_prepares_and_trains_in_pods_and_measures_on_devices(
    namespace: Namespace, snakemake: Snakemake, tmp_path: Path
) -> None:
    image = snakemake_image(namespace.cluster)
    folder = tmp_path / "pipeline"
    shutil.copytree(PROJECT / "docs/pipeline", folder)
    config = yaml.safe_load((folder / "config/lab.yaml").read_text())
    pod = dict(namespace.device("pod").settings)
    config["devices"] = {"local": {}, "pod": {"kind": "kubernetes", **pod}}
    config["matrix"]["devices"] = ["local", "pod"]
    (folder / "config/lab.yaml").write_text(yaml.safe_dump(config))
    (folder / "Snakefile").write_text((folder / "Snakefile").read_text() + BAD)
    with shared(namespace, folder) as claim:
        options = [*in_pods(namespace, claim, image, folder), "--rerun-triggers", "mtime"]
        run = snakemake.start([*OURS, *COMMON, *options, "--", "all", "bad.txt"], folder).wait(LIMIT_S)
        assert run.rc == 1, run.text
        assert "Error in rule bad" in run.text
        assert run.text.count("Error in rule") == 1, run.text
        logs = [path.read_text() for path in (folder / ".snakemake/auxiliary/kubernetes-logs").glob("*.log")]
        assert len(logs) == 1
        assert "no luck in this pod" in logs[0], "the log of the pod that failed"
        for kind in ("text", "noise"):
            assert "made on snakejob-" in (folder / f"logs/prepare-{kind}.log").read_text(), "in a pod"
        records = list(folder.glob("runs/compression/records/*/*.json"))
        measured = sorted((path.parent.name, json.loads(path.read_text())["status"]) for path in records)
        assert measured == [("local", "ok")] * 4 + [("pod", "ok")] * 4
        models = json.loads((folder / "model.json").read_text())
        assert len(models) == 4, "two devices, two kinds of data"
        assert left(namespace) == {"jobs": [], "secrets": []}
        again = snakemake.start([*OURS, *COMMON, *options], folder).wait(LIMIT_S)
        assert again.rc == 0
        assert "Nothing to be done" in again.text


HELD = """
rule all:
    localrule: True
    input:
        "a.txt",
        "b.txt",


rule held:
    output:
        "{name}.txt",
    shell:
        "touch began-{wildcards.name}; while [ ! -e go ]; do sleep 0.1; done; touch {output}"
"""


def test_ctrl_c_takes_the_pods_away(namespace: Namespace, snakemake: Snakemake, tmp_path: Path) -> None:
    image = snakemake_image(namespace.cluster)
    folder = tmp_path / "held"
    folder.mkdir()
    (folder / "Snakefile").write_text(HELD)
    with shared(namespace, folder) as claim:
        started = snakemake.start([*OURS, *COMMON, *in_pods(namespace, claim, image, folder)], folder)
        until(lambda: all((folder / f"began-{name}").exists() for name in "ab") or started.ended.is_set(), "both run")
        assert not started.ended.is_set(), started.text()
        started.kill(signal.SIGINT)
        ended = started.wait(LIMIT_S)
        assert ended.rc == 1
        assert "did not end in time" not in ended.text
        assert left(namespace) == {"jobs": [], "secrets": []}
        assert not (folder / "a.txt").exists()
