"""An account of a cluster that may do a few things in one namespace, and its kubeconfig."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import yaml

from e2e.kubernetes.helpers_cluster import Namespace, until
from sidewinder.transports.kubernetes_access import Right, may
from sidewinder.transports.kubernetes_cluster import Cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
_SEEN = Right("get", "configmaps", "")


def account(namespace: Namespace, name: str, rules: list[dict[str, Any]], folder: Path) -> str:
    """The kubeconfig of a new account that may do only this, and only in that namespace."""
    rules = [*rules, {"apiGroups": [_SEEN.group], "resources": [_SEEN.resource], "verbs": [_SEEN.verb]}]
    rbac = f"{RBAC}/namespaces/{namespace.name}"
    namespace.api("POST", f"{rbac}/roles", {"metadata": {"name": name}, "rules": rules})
    bound = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace.name}],
    }
    namespace.api("POST", f"{rbac}/rolebindings", bound)
    return bound_account(namespace, name, folder)


def bound_account(namespace: Namespace, name: str, folder: Path) -> str:
    """The same, where somebody bound it already to a Role that allows to get ConfigMaps, too."""
    namespace.api("POST", f"{namespace.path}/serviceaccounts", {"metadata": {"name": name}})
    answer = namespace.api("POST", f"{namespace.path}/serviceaccounts/{name}/token", {"spec": {}})
    kubeconfig = with_token(namespace, answer["status"]["token"], folder / name)
    until(lambda: allowed(kubeconfig, _SEEN, namespace.name), "the API server knows the new Role")
    return kubeconfig


def allowed(kubeconfig: str, right: Right, namespace: str) -> bool | None:
    async def ask() -> bool | None:
        cluster = Cluster(kubeconfig, None)
        try:
            return await may(cluster, right, namespace)
        finally:
            await cluster.close()

    return asyncio.run(ask())


def with_token(namespace: Namespace, token: str, path: Path) -> str:
    return with_user(namespace, {"token": token}, path)


def with_user(namespace: Namespace, user: dict[str, Any], path: Path) -> str:
    """The kubeconfig of the cluster with other credentials."""
    text = yaml.safe_load(Path(namespace.cluster.kubeconfig).read_text())
    text["users"] = [{"name": text["users"][0]["name"], "user": user}]
    path.write_text(yaml.safe_dump(text))
    return str(path)
