"""What ordinary jobs in pods need: an image with Snakemake and Sidewinder, and a folder that pods and we share.

On a cluster that the tests started the image is made once, and a folder of this machine is one of its nodes too. On a
person's cluster SIDEWINDER_TEST_SNAKEMAKE_IMAGE names the image, and its nodes must see this machine's files (kind's
`extraMounts`, NFS) below the folder for temporary files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from e2e.kubernetes.helpers_cluster import PROJECT, Namespace, TestCluster, alone, until

IMAGE = "SIDEWINDER_TEST_SNAKEMAKE_IMAGE"
PACKAGES = ("snakemake", "pydantic", "pyyaml")  # all that reading a Snakefile with a lab in it takes
SOURCES = ("pyproject.toml", "workflow/sidewinder", "rules", "executor_plugin")


def snakemake_image(cluster: TestCluster) -> str:
    """Its name; made where this cluster has none of this state of the sources."""
    if os.environ.get(IMAGE):
        return os.environ[IMAGE]
    if not cluster.is_own:
        pytest.skip(f"{IMAGE} must name an image with Snakemake and Sidewinder that the nodes of this cluster can have")
    digest = _digest()
    name = f"k8s.local/snakemake:{digest}"
    mark = Path(cluster.kubeconfig).with_name(f"image-{digest}")  # goes when the cluster goes
    with alone(mark.with_suffix(".lock")):
        if not mark.exists():
            pinned = " ".join(f"{one}=={version(one)}" for one in PACKAGES)
            with tempfile.TemporaryDirectory() as folder:
                cluster.make_image(name, pinned, f"--no-deps {_wheel(Path(folder))}")
            mark.touch()
    return name


def _digest() -> str:
    digest = hashlib.sha256()
    for source in SOURCES:
        for path in sorted([PROJECT / source, *(PROJECT / source).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _wheel(folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=PROJECT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@contextlib.contextmanager
def shared(namespace: Namespace, folder: Path) -> Iterator[str]:
    """A claim whose volume is this folder. Skips where the nodes see other files than we do."""
    claim = namespace.name  # volumes belong to no namespace
    volume = {
        "metadata": {"name": claim, "labels": {"sidewinder-test": "yes"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": str(folder)},
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": namespace.name, "name": claim},
        },
    }
    asked: dict[str, Any] = {
        "metadata": {"name": claim},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": claim,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    namespace.api("POST", "/api/v1/persistentvolumes", volume)
    try:
        namespace.api("POST", f"{namespace.path}/persistentvolumeclaims", asked)
        if not _is_seen(namespace, folder):
            pytest.skip(f"the nodes of this cluster do not see this machine's {folder}")
        yield claim
    finally:
        namespace.api("DELETE", f"{namespace.path}/persistentvolumeclaims/{claim}")
        namespace.api("DELETE", f"/api/v1/persistentvolumes/{claim}")


def _is_seen(namespace: Namespace, folder: Path) -> bool:
    token, claim = folder / "token", namespace.name
    token.write_text(namespace.name)
    look = {
        "name": "c",
        "image": namespace.cluster.image,
        "command": ["python3", "-c", f"assert open({str(token)!r}).read() == {namespace.name!r}"],
        "volumeMounts": [{"name": "shared", "mountPath": str(folder)}],
    }
    spec = {
        "containers": [look],
        "restartPolicy": "Never",
        "volumes": [{"name": "shared", "persistentVolumeClaim": {"claimName": claim}}],
    }
    namespace.api("POST", f"{namespace.path}/pods", {"metadata": {"name": "look"}, "spec": spec})
    last: dict[str, Any] = {}

    def phase() -> str | None:
        last.update(namespace.pod("look"))
        found: str = last["status"].get("phase")
        return found if found in ("Succeeded", "Failed") else None

    try:
        return bool(until(phase, "a pod looked at the folder") == "Succeeded")
    except AssertionError as error:
        raise AssertionError(f"{error}: {last.get('status')}") from None
    finally:
        namespace.delete_pod("look", grace_s=0)
