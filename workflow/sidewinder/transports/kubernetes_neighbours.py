"""A neighbour: another pod on the node of a device. How many there are, and how much CPU they were promised.

Asked for when a device is connected, never for a point. The list of a node's pods needs a right in all namespaces; who
has it not learns nothing, which is not the same as nobody being there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from sidewinder import quantity
from sidewinder.errors import SidewinderError
from sidewinder.model import Json

from .kubernetes_cluster import Cluster
from .kubernetes_errors import Refused
from .kubernetes_verdict import Pod

FRESH_S: Final = 10.0  # devices of one node that connect together share one look
FORBIDDEN_S: Final = 600.0  # then it is tried whether it is allowed by now
_OVER: Final = frozenset({"Succeeded", "Failed"})


class _Look(NamedTuple):
    at_s: float
    at_utc: str
    requests: Mapping[str, Fraction] | None  # CPUs by uid of a pod; None: not to be had


_looks: WeakKeyDictionary[Cluster, dict[str, asyncio.Task[_Look]]] = WeakKeyDictionary()


async def others(cluster: Cluster, node: str, uid: str) -> dict[str, Json]:
    """``pods`` beside that one that are not over, ``cpu_request_cores`` of all of them, ``counted_utc``. Empty where
    this account may not list them."""
    looks = _looks.setdefault(cluster, {})
    look = looks.get(node)
    if look is None or (look.done() and not _is_fresh(look)):
        look = looks[node] = asyncio.create_task(_look(cluster, node), name=f"neighbours on {node}")
    _, at_utc, requests = await asyncio.shield(look)
    if requests is None:
        return {}
    found = [cpus for other, cpus in requests.items() if other != uid]
    return {"pods": len(found), "cpu_request_cores": round(float(sum(found)), 6), "counted_utc": at_utc}


def _is_fresh(look: asyncio.Task[_Look]) -> bool:
    if look.cancelled() or look.exception() is not None:
        return False
    at_s, _, requests = look.result()
    limit_s = FRESH_S if requests is not None else FORBIDDEN_S
    return asyncio.get_running_loop().time() - at_s < limit_s


async def _look(cluster: Cluster, node: str) -> _Look:
    import aiohttp

    # resourceVersion 0: as the API server has it in its cache, without a question to its store
    query = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"}
    requests: dict[str, Fraction] | None = None
    at_s = asyncio.get_running_loop().time()
    try:
        listed = await cluster.request("GET", "/api/v1/pods", query=query)
        pods = [pod for pod in listed.get("items") or () if (pod.get("status") or {}).get("phase") not in _OVER]
        requests = {pod["metadata"]["uid"]: _cpu_request(pod) for pod in pods}
    except Refused as error:
        at_s -= 0 if error.status == 403 else FORBIDDEN_S  # anything else may go well the next time
    except (SidewinderError, aiohttp.ClientError, OSError):  # what is broken the connection itself will tell
        at_s -= FORBIDDEN_S
    return _Look(at_s, datetime.now(UTC).isoformat(timespec="seconds"), requests)


def _cpu_request(pod: Pod) -> Fraction:
    """As the scheduler counts it while the pod's containers run, in CPUs."""
    spec = pod["spec"]
    helpers = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    parts = [_cpu(one.get("resources")) for one in (*spec["containers"], *helpers)]
    whole = (spec.get("resources") or {}).get("requests") or {}
    asked = _cpu(spec["resources"]) if "cpu" in whole else sum(parts, Fraction(0))
    return asked + _cpu({"requests": spec.get("overhead")})


def _cpu(resources: Mapping[str, Any] | None) -> Fraction:
    text = ((resources or {}).get("requests") or {}).get("cpu")
    try:
        return quantity.parse(str(text)) if text is not None else Fraction(0)
    except ValueError:
        return Fraction(0)
