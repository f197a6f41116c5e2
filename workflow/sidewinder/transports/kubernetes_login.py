"""A login: the HTTP client that the context of a kubeconfig describes, with its credentials.

kubernetes-asyncio reads the kubeconfig: certificates, tokens, credential plugins, proxies, names of its own CA.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import Device

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

KEY = "kubeconfig"
_WHERE = (
    "a cluster is named by this key, by KUBECONFIG or by ~/.kube/config; `kind export kubeconfig` writes that one, k3s "
    "has /etc/rancher/k3s/k3s.yaml"
)


def kubeconfig_of(device: Device) -> str:
    given = device.settings.get("kubeconfig")
    if given:
        return os.path.abspath(os.path.expanduser(str(given)))
    return os.environ.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")


async def log_in(kubeconfig: str, context: str | None) -> tuple[ApiClient, str]:
    """The client and the namespace of the context. Raises ``ConfigError``, and ``TransportError`` where a credential
    plugin fails: it asks somebody else."""
    try:
        from kubernetes_asyncio import config
        from kubernetes_asyncio.client import ApiClient, Configuration
    except ImportError as error:
        raise ConfigError(
            "devices of kind kubernetes need the package kubernetes-asyncio on the controller",
            hint="pip install 'snakemake-executor-plugin-sidewinder[kubernetes]'",
        ) from error
    configuration = Configuration()
    configuration.connection_pool_maxsize = 0  # each device keeps a stream open: no limit
    if not _is_there(kubeconfig):
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            with suppress(config.ConfigException):  # in a pod of that cluster ourselves
                in_cluster: Any = config.load_incluster_config
                in_cluster(client_configuration=configuration)
                return ApiClient(configuration), "default"
        raise ConfigError("there is no such kubeconfig", key=KEY, value=kubeconfig, hint=_WHERE)
    loader = _loader(kubeconfig, context)
    try:
        await loader.load_and_set(configuration)
    except (config.ConfigException, OSError, ValueError) as error:
        text = f"the credentials of {kubeconfig} cannot be had: {error}"
        if loader._user is not None and "exec" in loader._user and not isinstance(error, OSError):
            raise TransportError(f"{text}. The credential plugin failed: does it want you to log in again?") from error
        raise ConfigError(text, key=KEY) from error
    found = loader.current_context or {}
    namespace = str(found.get("context", {}).get("namespace") or "default")
    try:
        return ApiClient(configuration), namespace
    except OSError as error:  # ssl.SSLError is one: files that hold no certificate
        raise ConfigError(f"its certificates cannot be used: {error}", key=KEY, value=kubeconfig) from error


def _is_there(kubeconfig: str) -> bool:
    return any(os.path.exists(os.path.expanduser(path)) for path in kubeconfig.split(os.pathsep) if path)


def _loader(kubeconfig: str, context: str | None) -> Any:
    import yaml
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    try:
        merged: Any = KubeConfigMerger(kubeconfig).config
        _check_context(merged.value, kubeconfig, context)
        return KubeConfigLoader(merged, active_context=context, config_base_path=None)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"this kubeconfig cannot be used: {error}", key=KEY, value=kubeconfig, hint=_WHERE) from error


def _check_context(found: Mapping[str, Any], kubeconfig: str, context: str | None) -> None:
    names = [str(one["name"]) for one in found.get("contexts") or ()]
    wanted = context or found.get("current-context")
    if wanted in names:
        return
    has = f"{kubeconfig} has: {', '.join(names) or 'none'}"
    if context is None and not wanted:
        raise ConfigError("the kubeconfig says no current context: name one", key="context", hint=has)
    raise ConfigError("there is no such context in the kubeconfig", key="context", value=wanted, hint=has)


def ended(api: ApiClient) -> str:
    """Since when the credentials of a login are over, in words; empty: they are not, or do not say."""
    found = api.configuration
    for what, until in (
        ("client certificate", _end_of_certificate(found.cert_file)),
        ("token", _end_of_token(str((found.api_key or {}).get("BearerToken") or ""))),
    ):
        if until is not None and until < datetime.now(UTC):
            return f"The {what} of the kubeconfig expired on {until:%Y-%m-%d %H:%M} UTC"
    return ""


def _end_of_certificate(path: str | None) -> datetime | None:
    from cryptography import x509

    try:
        with open(path or "", "rb") as file:
            return x509.load_pem_x509_certificate(file.read()).not_valid_after_utc
    except (OSError, ValueError):
        return None


def _end_of_token(token: str) -> datetime | None:
    """Of the kind that tells (a JWT): those of service accounts and of OpenID Connect do."""
    parts = token.removeprefix("Bearer ").split(".")
    with suppress(ValueError, TypeError, KeyError, IndexError, OverflowError):
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return datetime.fromtimestamp(json.loads(text)["exp"], UTC)
    return None
