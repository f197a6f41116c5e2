"""A bad link to the API server: a kubeconfig whose server is a fault proxy before the real one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import yaml

from e2e.helpers_ssh import FaultProxy


def server_of(kubeconfig: str) -> tuple[int, str]:
    """Port and host of the API server, as ``FaultProxy`` wants them."""
    url = urlsplit(_cluster_of(yaml.safe_load(Path(kubeconfig).read_text()))["server"])
    assert url.hostname is not None
    return url.port or 443, url.hostname


def behind(proxy: FaultProxy, kubeconfig: str, folder: Path) -> str:
    """The same kubeconfig by way of the proxy."""
    text = yaml.safe_load(Path(kubeconfig).read_text())
    one = _cluster_of(text)
    one["tls-server-name"] = urlsplit(one["server"]).hostname
    one["server"] = f"https://127.0.0.1:{proxy.port}"
    path = folder / "kubeconfig-behind-a-proxy"
    path.write_text(yaml.safe_dump(text))
    path.chmod(0o600)
    return str(path)


def _cluster_of(text: dict) -> dict:
    context = next(one["context"] for one in text["contexts"] if one["name"] == text["current-context"])
    found: dict = next(one["cluster"] for one in text["clusters"] if one["name"] == context["cluster"])
    return found
