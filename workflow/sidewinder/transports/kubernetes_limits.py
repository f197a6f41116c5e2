"""A pod's limits: what was asked for beside what the cluster granted and what holds inside, and where they differ.

Asked is what the config describes, the template included. Of a pod that we make, what is not asked for must not be
there either: no limit is an arm like any other. Of one that was there before, only what the config names is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Final, NamedTuple

from sidewinder import quantity
from sidewinder.model import Device, Json

from .kubernetes_spec import container_name, pod_limits_of, resources_of
from .kubernetes_verdict import Pod

# Limits that decide how fast something runs. What else a cluster adds (ephemeral storage) is compared where asked for.
_DECISIVE: Final = ("cpu", "memory")
# The kubelet makes no smaller quota than that, whatever was asked for.
MIN_QUOTA_US: Final = 1000
# systemd knows quotas in hundredths of a CPU, rounded up; after a reload of its own that is what holds.
_SYSTEMD_STEPS: Final = 100
# The kernel keeps memory limits in whole pages; pages have these sizes.
_PAGES: Final = (4096, 16384, 65536)
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"


class Difference(NamedTuple):
    """``key`` of the device in the config; what it asks for and what there is instead, for people."""

    key: str
    asked: str
    found: str

    def __str__(self) -> str:
        return f"{self.key}: asked is {self.asked}, there is {self.found}"


class Resources(NamedTuple):
    """Texts by Kubernetes' names: limits and requests of the container, and the limits that hold ``inside``.
    ``is_whole``: what is not here must not be there."""

    limits: Mapping[str, str]
    requests: Mapping[str, str]
    inside: Mapping[str, str]
    is_whole: bool


def asked_of(device: Device) -> Resources:
    is_whole = bool(device.settings.get("image"))
    found = resources_of(device)
    limits = found.get("limits") or {}
    # as the API server fills in: who asks for a limit alone requests as much
    requests = {**limits, **(found.get("requests") or {})}
    return Resources(limits, requests, {**pod_limits_of(device), **limits}, is_whole)


# -- what the cluster granted


def ungranted(pod: Pod, device: Device) -> list[Difference]:
    """Where the pod's specification, as it is in the cluster now, differs from what was asked for."""
    asked = asked_of(device)
    name = container_name(device)
    own: Mapping[str, Any] = next((one for one in pod["spec"]["containers"] if one["name"] == name), {})
    granted = own.get("resources") or {}
    found = [*_compared(asked.limits, granted.get("limits") or {}, asked.is_whole, _limit_key)]
    if asked.is_whole:
        found += _compared(asked.requests, granted.get("requests") or {}, True, _request_key)
    node, wanted = pod["spec"].get("nodeName"), device.settings.get("node_name")
    if wanted and node and node != wanted:
        found.append(Difference("node_name", str(wanted), str(node)))
    return list(dict.fromkeys(found))


def _compared(
    asked: Mapping[str, str], granted: Mapping[str, str], is_whole: bool, key_of: Any
) -> Iterator[Difference]:
    for name in dict.fromkeys((*asked, *(_DECISIVE if is_whole else ()))):
        wanted, there = asked.get(name), granted.get(name)
        if _amount(wanted) != _amount(there):
            yield Difference(key_of(name), wanted or "none", there or "none")


def _amount(text: str | None) -> Fraction | str | None:
    try:
        return None if text is None else quantity.parse(str(text))
    except ValueError:  # a spelling that only the server knows: the same text is the same amount
        return text


def _limit_key(name: str) -> str:
    own = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "ephemeral_storage"}
    return own.get(name) or f"resources.{name}"


def _request_key(name: str) -> str:
    key = _limit_key(name)
    return key if key.startswith("resources.") else f"{key}_request"


def why_other(pod: Pod) -> str:
    """What the pod says of who set other limits; empty: nothing."""
    metadata = pod["metadata"]
    ranger = (metadata.get("annotations") or {}).get(_LIMIT_RANGER)
    parts = [f"a LimitRange of its namespace did that: {ranger}"] if ranger else []
    generation = metadata.get("generation")
    if isinstance(generation, int) and generation > 1:
        parts.append(f"it was changed after it was made, as by a resize: generation {generation}")
    return "; ".join(parts)


# -- what holds inside


def unlike_inside(limits: Mapping[str, Json], device: Device) -> list[Difference]:
    """Where the limits of the container's control group, as the agent reads them, differ from what was asked for. What
    the group does not tell is no difference."""
    asked = asked_of(device)
    unlimited = limits.get("unlimited") or ()
    found = []
    cpu = asked.inside.get("cpu")
    if cpu is not None or asked.is_whole:
        quota_us, period_us = limits.get("cpu_quota_us"), limits.get("cpu_period_us")
        if isinstance(quota_us, int) and isinstance(period_us, int) and period_us > 0:
            if cpu is None or not _is_quota_of(quantity.parse(cpu), quota_us, period_us):
                there = f"{quota_us / period_us:g} CPUs ({quota_us} us of every {period_us} us)"
                found.append(Difference("cpu", cpu or "no limit", there))
        elif cpu is not None and "cpu" in unlimited and not _is_exclusive(quantity.parse(cpu), limits.get("cpuset")):
            found.append(Difference("cpu", cpu, "no quota"))
    memory = asked.inside.get("memory")
    if memory is not None or asked.is_whole:
        limit = limits.get("memory_max_bytes")
        if isinstance(limit, int):
            if memory is None or not _is_limit_of(quantity.parse(memory), limit):
                found.append(Difference("memory", memory or "no limit", f"{limit} bytes"))
        elif memory is not None and "memory" in unlimited:
            found.append(Difference("memory", memory, "no limit"))
    return found


def _is_quota_of(cpus: Fraction, quota_us: int, period_us: int) -> bool:
    steps = -(-cpus * _SYSTEMD_STEPS // 1)
    wanted = (cpus, Fraction(steps) / _SYSTEMD_STEPS)
    return any(abs(max(one * period_us, Fraction(MIN_QUOTA_US)) - quota_us) < 1 for one in wanted)


def _is_limit_of(wanted: Fraction, limit: int) -> bool:
    asked = int(wanted)
    return limit == asked or any(limit == asked - asked % page for page in _PAGES)


def _is_exclusive(cpus: Fraction, cpuset: Json) -> bool:
    """Whole CPUs that a kubelet's static policy gave to this container alone need no quota."""
    return isinstance(cpuset, str) and _count(cpuset) == cpus


def _count(cpuset: str) -> int | None:
    """How many CPUs ``0-3,8`` are."""
    count = 0
    for part in cpuset.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        count += int(last or first) - int(first) + 1
    return count


# -- for people


def sentence(differences: list[Difference], device: Device, where: str, why: str = "") -> str:
    """Empty where there is no difference. ``where`` names the device and its pod."""
    if not differences:
        return ""
    listed = "; ".join(f"devices.{device.id}.{one}" for one in differences)
    because = f" ({why})" if why else ""
    settings = device.settings
    if settings.get("image") and settings.get("create", True):
        what = f"let the config say what there is, or have the pod made anew: sidewinder devices down {device.id}"
    else:
        what = "correct the pod, or what the config says of it"
    return f"{where}: the pod is not the device that the config describes: {listed}{because}. To mend it {what}"
