"""A pod's facts: what the cluster knows of where a device's runs really go. What cannot be had is absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import Json

from .kubernetes_errors import Refused
from .kubernetes_limits import sentence, ungranted, why_other
from .kubernetes_neighbours import others
from .kubernetes_verdict import Container, Pod, container_status

if TYPE_CHECKING:
    from .kubernetes_pod import PodLife

_NODE_INFO: Final = {
    "kernel": "kernelVersion",
    "kubelet": "kubeletVersion",
    "runtime": "containerRuntimeVersion",
    "os_image": "osImage",
    "machine": "architecture",
    "boot_id": "bootID",
}


def check_granted(life: PodLife, pod: Pod) -> None:
    """Raises ``DeviceFault`` where the pod is another than the config describes: a LimitRange added to it, it was
    resized, or it is on another node than it is pinned to."""
    if differences := ungranted(pod, life.device):
        raise DeviceFault(sentence(differences, life.device, life.where, why_other(pod)))


async def pod_facts(life: PodLife, pod: Pod, container: Container) -> dict[str, Json]:
    """For the record. ``limits`` and ``requests`` are what the cluster granted, ``asked`` is what the config says. What
    holds inside is read there."""
    status = pod.get("status") or {}
    own = container_status(pod, life.container) or {}
    spec: Mapping[str, Any] = next((one for one in pod["spec"]["containers"] if one["name"] == life.container), {})
    resources = spec.get("resources") or {}
    found: dict[str, Json] = {
        "name": container.pod,
        "namespace": pod["metadata"].get("namespace"),
        "uid": container.uid,
        "node": container.node,
        "qos": status.get("qosClass"),
        "image": spec.get("image"),
        "image_id": own.get("imageID"),
        "container_id": container.id,
        "started_at_utc": container.started_at,
        "restarts": container.restarts,
        "limits": dict(resources.get("limits") or {}),
        "requests": dict(resources.get("requests") or {}),
        "asked": asked(life.device.settings),
        "runtime_class": pod["spec"].get("runtimeClassName"),
        "node_info": await _node(life, container.node),
        "node_others": await others(life.cluster, container.node, container.uid),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {})}


def asked(settings: Mapping[str, Json]) -> dict[str, Json]:
    names = ("cpu", "memory", "ephemeral_storage", "cpu_request", "memory_request", "ephemeral_storage_request")
    found = {name: settings[name] for name in (*names, "resources", "node_name", "node_selector") if settings.get(name)}
    return dict(found)


async def _node(life: PodLife, name: str) -> dict[str, Json]:
    """Of the node, if this account may look at nodes."""
    try:
        node = await life.cluster.request("GET", f"/api/v1/nodes/{name}")
    except (Refused, TransportError):
        return {}
    info = (node.get("status") or {}).get("nodeInfo") or {}
    found = {key: info.get(name) for key, name in _NODE_INFO.items()}
    labels = node["metadata"].get("labels") or {}
    wanted = {key: labels.get(key) for key in life.device.settings.get("node_selector") or {}}
    return {key: value for key, value in {**found, "labels": wanted}.items() if value}
