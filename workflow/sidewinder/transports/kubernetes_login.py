"""A login: the HTTP client that the context of a kubeconfig describes, with its credentials.

kubernetes-asyncio reads the kubeconfig: certificates, tokens, credential plugins, proxies, names of its own CA.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sidewinder.errors import ConfigError, TransportError
from sidewinder.model import Device

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

KEY = "kubeconfig"


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
        raise ConfigError("there is no such kubeconfig", key=KEY, value=kubeconfig)
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
        merged = KubeConfigMerger(kubeconfig).config
        return KubeConfigLoader(merged, active_context=context, config_base_path=None)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError) as error:
        hint = "name one of its contexts, or another file, by `kubeconfig` and `context`"
        raise ConfigError(f"this kubeconfig cannot be used: {error}", key=KEY, value=kubeconfig, hint=hint) from error
