"""A pod's specification: what is sent to the API server for one device, made of its settings and nothing else.

Its digest is written on the pod, so that a pod is known as the one that a config describes, or as another.
"""

from __future__ import annotations

import copy
import hashlib
import json
import posixpath
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from sidewinder import ids
from sidewinder.agent.source import PYTHON_FLAGS
from sidewinder.model import EMPTY, Device, Json

KEEPER: Final = resources.files(__package__).joinpath("kubernetes_keeper.py").read_text(encoding="utf-8")
PYTHON: Final = "python3"
CONTAINER: Final = "agent"
WORKDIR: Final = "/sidewinder"
IDLE_TIMEOUT_S: Final = 3600.0
GRACE_S: Final = 5  # the keeper ends at once; what it takes longer is the kubelet's own
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
OURS: Final = "sidewinder"
DEVICE: Final = "sidewinder/device"
SPEC_HASH: Final = "sidewinder/spec-hash"
OWNER: Final = "sidewinder/owner"
SELECTOR: Final = f"{MANAGED_BY}={OURS}"
_STATE: Final = "sidewinder-state"
_HASH_CHARS: Final = 16
_MERGED_BY: Final = {
    "containers": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_APPENDED: Final = ("tolerations",)

Manifest = dict[str, Any]


def pod_name(device: Device) -> str:
    return str(device.settings.get("pod") or ids.pod_name(device.id))


def container_name(device: Device) -> str:
    return str(device.settings.get("container") or CONTAINER)


def python_of(device: Device) -> str:
    return device.python or PYTHON


def workdir_of(device: Device) -> str:
    return str(device.settings.get("workdir") or WORKDIR)


def manifest(device: Device, owner: str) -> Manifest:
    """The pod as JSON. ``owner`` says who made it and is no part of the digest."""
    settings = device.settings
    ours: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(device),
            "labels": {MANAGED_BY: OURS},
            "annotations": {DEVICE: device.id},
        },
        "spec": {
            "restartPolicy": "OnFailure",  # a keeper that ends well has ended the pod
            "terminationGracePeriodSeconds": GRACE_S,
            "enableServiceLinks": False,
            "containers": [_container(device)],
            "volumes": _volumes(device),
            **_placement(settings),
        },
    }
    if settings.get("image_pull_secrets"):
        ours["spec"]["imagePullSecrets"] = [{"name": name} for name in settings["image_pull_secrets"]]
    account = settings.get("service_account")
    ours["spec"] |= {"serviceAccountName": account} if account else {"automountServiceAccountToken": False}
    template = settings.get("pod_template") or {}
    pod = _merged(template, ours)
    _pin(pod["spec"], settings.get("node_name"))
    annotations = pod["metadata"]["annotations"]
    annotations.pop(OWNER, None)
    annotations.pop(SPEC_HASH, None)
    annotations[SPEC_HASH] = spec_hash(pod)
    annotations[OWNER] = owner
    return pod


def spec_hash(pod: Mapping[str, Json]) -> str:
    text = json.dumps(pod, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]


def resources_of(device: Device) -> Manifest:
    """Limits and requests of the device's container as they are asked for, with what its template says."""
    listed = _template_spec(device).get("containers") or ()
    own: Manifest = next((one for one in listed if one.get("name") == container_name(device)), {})
    return _merged(own.get("resources") or {}, _resources(device.settings))


def pod_limits_of(device: Device) -> Manifest:
    """Of the pod as a whole: they hold for a container that has none of its own."""
    return (_template_spec(device).get("resources") or {}).get("limits") or {}


def _template_spec(device: Device) -> Mapping[str, Any]:
    return (device.settings.get("pod_template") or {}).get("spec") or {}


def _container(device: Device) -> Manifest:
    settings = device.settings
    idle = settings.get("idle_timeout_s", IDLE_TIMEOUT_S)
    idle_s = 0 if idle == "never" else idle
    found: Manifest = {
        "name": container_name(device),
        "image": settings["image"],
        "imagePullPolicy": settings.get("image_pull_policy", "IfNotPresent"),
        "command": [python_of(device), *PYTHON_FLAGS, "-c", KEEPER, f"{idle_s:g}"],
        "resources": _resources(settings),
        "volumeMounts": _mounts(device),
    }
    secrets = settings.get("env_from_secrets") or {}
    if secrets:
        found["env"] = [_secret_variable(name, where) for name, where in sorted(secrets.items())]
    return found


def _secret_variable(name: str, where: str) -> Manifest:
    secret, _, key = where.partition("/")
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}


def _resources(settings: Mapping[str, Json]) -> Manifest:
    """Requests equal limits unless said otherwise: a device that shares its CPU is no device. No limit is legal."""
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for key, name in (("cpu", "cpu"), ("memory", "memory"), ("ephemeral_storage", "ephemeral-storage")):
        limit, request = settings.get(key), settings.get(f"{key}_request")
        if limit is not None:
            limits[name] = limit
            requests[name] = limit
        if request is not None:
            requests[name] = request
    for name, amount in (settings.get("resources") or {}).items():
        limits[name] = requests[name] = amount
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


# -- volumes


def _listed(settings: Mapping[str, Json]) -> list[tuple[str, Mapping[str, Json]]]:
    """Volumes of both spellings with the names that they get in the pod."""
    mounts = settings.get("host_mounts") or ()
    found = [
        (one.get("name") or f"sidewinder-host-{index}", {"read_only": True, "type": "Directory", **one})
        for index, one in enumerate(mounts)
    ]
    return found + [(f"sidewinder-volume-{index}", one) for index, one in enumerate(settings.get("volumes") or ())]


def _volumes(device: Device) -> list[Manifest]:
    found = [{"name": name, **_source(one)} for name, one in _listed(device.settings)]
    if _needs_state(device):
        # It outlives a container that is restarted, every user may write there, and it is there where the root file
        # system is read-only.
        found.append({"name": _STATE, "emptyDir": {}})
    return found


def _source(one: Mapping[str, Json]) -> Manifest:
    if one.get("host_path"):
        kind = one.get("type")
        return {"hostPath": {"path": one["host_path"], **({"type": kind} if kind else {})}}
    if one.get("pvc"):
        return {"persistentVolumeClaim": {"claimName": one["pvc"]}}
    if one.get("config_map"):
        return {"configMap": {"name": one["config_map"]}}
    wanted = one.get("empty_dir") or {}
    named = {"medium": wanted.get("medium"), "sizeLimit": wanted.get("size_limit")}
    return {"emptyDir": {key: value for key, value in named.items() if value}}


def _mounts(device: Device) -> list[Manifest]:
    found: list[Manifest] = []
    for name, one in _listed(device.settings):
        mount: Manifest = {"name": name, "mountPath": one["mount_path"]}
        if one.get("read_only"):
            mount["readOnly"] = True
        if one.get("sub_path"):
            mount["subPath"] = one["sub_path"]
        found.append(mount)
    if _needs_state(device):
        found.append({"name": _STATE, "mountPath": workdir_of(device)})
    return found


def _needs_state(device: Device) -> bool:
    """Whether the place where runs are kept lies on no volume that was asked for."""
    workdir = posixpath.normpath(workdir_of(device))
    mounts = [posixpath.normpath(one["mount_path"]) for _, one in _listed(device.settings)]
    return not any(workdir == mount or workdir.startswith(mount.rstrip("/") + "/") for mount in mounts)


# -- where it may run


def _placement(settings: Mapping[str, Json]) -> Manifest:
    found: Manifest = {}
    for key, name in (
        ("node_selector", "nodeSelector"),
        ("affinity", "affinity"),
        ("runtime_class", "runtimeClassName"),
        ("priority_class", "priorityClassName"),
    ):
        if settings.get(key):
            found[name] = copy.deepcopy(settings[key])
    if settings.get("tolerations"):
        found["tolerations"] = [_toleration(one) for one in settings["tolerations"]]
    return found


def _toleration(one: Mapping[str, Json]) -> Manifest:
    return {"tolerationSeconds" if key == "toleration_seconds" else key: value for key, value in one.items()}


def _pin(spec: Manifest, node: str | None) -> None:
    """To one node, by way of the scheduler: `spec.nodeName` would go round it, and a full node would then refuse."""
    if node is None:
        return
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    for term in required["nodeSelectorTerms"]:  # one of them must fit, each as a whole
        term["matchFields"] = [*term.get("matchFields", []), pin]


# -- the template


def _merged(template: Mapping[str, Json], ours: Mapping[str, Json]) -> Manifest:
    """Ours over the template: mappings merge, named things of a list merge by name, everything else is replaced."""
    found: Manifest = copy.deepcopy(dict(template))
    for key, value in copy.deepcopy(dict(ours)).items():
        there = found.get(key)
        if isinstance(there, dict) and isinstance(value, dict):
            found[key] = _merged(there, value)
        elif isinstance(there, list) and key in _MERGED_BY:
            found[key] = _merged_by(_MERGED_BY[key], there, value)
        elif isinstance(there, list) and key in _APPENDED:
            found[key] = [*there, *value]
        else:
            found[key] = value
    return found


def _merged_by(name: str, theirs: list[Json], ours: list[Json]) -> list[Json]:
    found = {one.get(name): one for one in theirs}
    for one in ours:
        # what is mounted at one place is one thing, not a mixture
        found[one[name]] = one if name == "mountPath" else _merged(found.get(one[name], EMPTY), one)
    return list(found.values())
