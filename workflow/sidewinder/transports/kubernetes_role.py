"""A Role: the manifest by which somebody who keeps a cluster lets an account measure there.

It is made of the list of rights, and nothing is asked of any cluster. A binding is named after whom it binds, so that
a second person's does not replace the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .kubernetes_access import RIGHTS, Right, rules

NAME: Final = "sidewinder"
_GROUP: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = "system:serviceaccount:"  # how the API server names one: its namespace and its name follow

_HEAD: Final = "# What Sidewinder's devices of kind kubernetes need of who measures. Made by: sidewinder devices role\n"

Manifest = dict[str, Any]


class Subject(NamedTuple):
    """Whom a binding binds. ``kind``: User, Group or ServiceAccount (with the ``namespace`` that it lives in)."""

    kind: str
    name: str
    namespace: str | None = None

    def described(self) -> Manifest:
        if self.kind == "ServiceAccount":
            return {"kind": self.kind, "name": self.name, "namespace": self.namespace}
        return {"kind": self.kind, "name": self.name, "apiGroup": _GROUP}


def user(name: str) -> Subject:
    """By the name that the API server knows it by, which of a service account is a long one."""
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if name.startswith(_ACCOUNT) and account:
        return Subject("ServiceAccount", account, namespace)
    return Subject("User", name)


def manifests(namespaces: Sequence[str | None], subjects: Sequence[Subject] = (), *, nodes: bool) -> list[Manifest]:
    """For each namespace (None: the one that is current where it is applied) a Role, and who has it.

    ``nodes``: also what is asked for in the whole cluster, as a ClusterRole."""
    found: list[Manifest] = []
    for namespace in namespaces:
        place: Manifest = {"namespace": namespace} if namespace else {}
        own = [right for right in RIGHTS if not right.everywhere]
        found += _granted("Role", NAME, place, own, subjects)
    if nodes:
        found += _granted("ClusterRole", f"{NAME}-nodes", {}, [right for right in RIGHTS if right.everywhere], subjects)
    return found


def _granted(
    kind: str, name: str, place: Manifest, rights: Sequence[Right], subjects: Sequence[Subject]
) -> list[Manifest]:
    version = f"{_GROUP}/v1"
    role: Manifest = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, **place},
        "rules": rules(rights),
    }
    bindings: list[Manifest] = [
        {
            "apiVersion": version,
            "kind": f"{kind}Binding",
            "metadata": {"name": _binding_name(name, subject), **place},
            "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": name},
            "subjects": [subject.described()],
        }
        for subject in subjects
    ]
    return [role, *bindings]


def _binding_name(role: str, subject: Subject) -> str:
    """Any text may name one, but for the two signs that mean something in a URL's path."""
    parts = (role, subject.kind.lower(), subject.namespace or "", subject.name)
    return ":".join(part for part in parts if part).replace("/", "-").replace("%", "-")


def text(found: Sequence[Manifest]) -> str:
    """As YAML, which `kubectl apply -f -` takes."""
    import yaml

    return _HEAD + "---\n".join(
        yaml.safe_dump(one, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True) for one in found
    )
