"""A right: a verb on a resource of the API server that devices of kind kubernetes use.

All of them are listed here and nowhere else: the Role that a person applies is made of this list, and which one is
missing is told by it. The API server is asked about each (a SelfSubjectAccessReview), nothing is tried.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sidewinder.errors import TransportError

from .kubernetes_errors import Refused

if TYPE_CHECKING:
    from .kubernetes_cluster import Cluster

_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class Right(NamedTuple):
    """``without``: what comes of it where it is missing. ``is_needed``: then nothing is measured.

    ``makes``: only where pods are made by us; ``everywhere``: in no single namespace, so it takes a ClusterRole;
    ``since``: the first version of Kubernetes that asks for it."""

    verb: str
    resource: str
    without: str
    is_needed: bool = False
    makes: bool = False
    everywhere: bool = False
    since: tuple[int, int] = (0, 0)
    group: str = ""

    def __str__(self) -> str:
        is_wide = self.everywhere and self.resource != "nodes"  # which are in no namespace anyway
        return f"{self.verb} {self.resource}{' in all namespaces' if is_wide else ''}"


GET_PODS: Final = Right("get", "pods", "its pod cannot be looked at", is_needed=True)
CREATE_PODS: Final = Right("create", "pods", "its pod cannot be made", is_needed=True, makes=True)
RIGHTS: Final = (
    GET_PODS,
    Right("list", "pods", "`sidewinder devices clean` finds no pods, and none are watched"),
    Right("watch", "pods", "a pod that starts is noticed late, and why one ended is often not known"),
    CREATE_PODS,
    Right("delete", "pods", "a pod that is over or not the right one cannot be replaced", is_needed=True, makes=True),
    Right("get", "pods/exec", "no command can be started in its pod", is_needed=True),
    # a web socket is opened by GET, so that older servers ask for `get` alone
    Right("create", "pods/exec", "no command can be started in its pod", is_needed=True, since=(1, 35)),
    Right("list", "events", "a pod that does not start says less about why"),
    Right("get", "nodes", "records lack the node's kernel, kubelet, runtime and labels", everywhere=True),
    Right("list", "pods", "records lack how many other pods were on the node", everywhere=True),
)


def rights_for(*, makes: bool) -> tuple[Right, ...]:
    """Those that a device uses. ``makes``: whether its pod is made, replaced and removed by us."""
    return tuple(right for right in RIGHTS if makes or not right.makes)


async def may(cluster: Cluster, right: Right, namespace: str) -> bool | None:
    """Whether this account may do it; None: the question is not allowed either."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
    if not right.everywhere:
        attributes["namespace"] = namespace
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await cluster.request("POST", _REVIEWS, body=body)
    except Refused as error:
        if error.status in (403, 404):
            return None
        raise
    return bool(answer["status"]["allowed"])


async def missing(cluster: Cluster, namespace: str, rights: Sequence[Right]) -> list[Right] | None:
    """Those of ``rights`` that this account does not have; None: it may not even ask. Raises what ``Cluster.request``
    raises."""
    answers = await asyncio.gather(*(may(cluster, right, namespace) for right in rights))
    if None in answers:
        return None
    found = [right for right, allowed in zip(rights, answers, strict=True) if allowed is False]
    if any(right.since > (0, 0) for right in found):
        version = await _version(cluster)
        found = [right for right in found if right.since <= version]
    return found


async def _version(cluster: Cluster) -> tuple[int, int]:
    """Of the API server; a high one where it does not say: then everything is asked for."""
    try:
        answer = await cluster.request("GET", "/version")
        return int(answer["major"]), int(str(answer["minor"]).rstrip("+"))  # "33+" is how some vendors write it
    except (Refused, TransportError, KeyError, ValueError):
        return 99, 0


async def account(cluster: Cluster) -> str | None:
    """The name that the API server knows us by; None where it does not say (before 1.28)."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await cluster.request("POST", _WHO, body=body)
        return str(answer["status"]["userInfo"]["username"])
    except (Refused, KeyError):
        return None


def rules(rights: Iterable[Right]) -> list[dict[str, Any]]:
    """As a Role lists them: one for each resource."""
    found: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        found.setdefault((right.group, right.resource), []).append(right.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs} for (group, resource), verbs in found.items()
    ]


def lines(rights: Iterable[Right]) -> str:
    """The same as text, as they stand among the ``rules`` of a Role."""
    return " and ".join(
        f'- {{apiGroups: ["{group}"], resources: [{resource}], verbs: [{", ".join(rule["verbs"])}]}}'
        for rule in rules(rights)
        for group, resource in ((rule["apiGroups"][0], rule["resources"][0]),)
    )


def grant_command(namespace: str, who: str | None, *, nodes: bool = False) -> str:
    """What somebody who may grant rights runs."""
    more = " --nodes" if nodes else ""
    user = shlex.quote(who) if who else "NAME"
    return f"sidewinder devices role --namespace {namespace} --user {user}{more} | kubectl apply -f -"


def lacks(rights: Sequence[Right], namespace: str, who: str | None, *, is_all: bool) -> str:
    """What a person is told who may not do what is needed, and what to do about it. Empty where nothing is missing."""
    if not rights:
        return ""
    named = ", ".join(str(right) for right in rights)
    meant = " (is that the namespace that is meant?)" if is_all else ""
    return (
        f"The account{f' {who}' if who else ''} lacks the right to {named} in namespace {namespace}{meant}. Who keeps "
        f"the cluster grants all that is needed by: {grant_command(namespace, who)} ; or this alone, in a Role there: "
        f"{lines(rights)}"
    )
