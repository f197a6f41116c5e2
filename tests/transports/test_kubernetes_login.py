"""Credentials whose time is over: the certificate of server or client, a token; a kubeconfig without a context."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509

from e2e.kubernetes.helpers_certificates import DAY, Authority, named, new_key, pem
from sidewinder.errors import ConfigError, DeviceFault, SidewinderError
from sidewinder.model import Device
from sidewinder.transports.kubernetes_cluster import Cluster
from sidewinder.transports.kubernetes_pod import PodLife

PATIENCE_S = 60.0


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def jwt(until_s: float) -> str:
    parts = [json.dumps(one).encode() for one in ({"alg": "none"}, {"exp": until_s})]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"signature"))


def asked(folder: Path, user: dict[str, Any], *, until: Any = DAY, context: str | None = "c") -> SidewinderError:
    """What comes of a look at a pod, at a server that knows nobody and whose certificate lives ``until`` then."""
    authority, key = Authority.new(), new_key()
    name = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    (folder / "server.pem").write_text(pem(key) + authority.sign(named("server"), key, name, until=until))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem")

    async def refuse(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"message": "Unauthorized"}, status=401)

    async def body() -> SidewinderError:
        runner = web.ServerRunner(web.Server(refuse), handle_signals=False, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        server = {"server": f"https://localhost:{port}", "certificate-authority-data": b64(authority.certificate)}
        kubeconfig = {
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": user}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        cluster = Cluster(str(folder / "kubeconfig"), context)
        life = PodLife(Device("k8s", "kubernetes", settings={"image": "i"}), cluster)
        try:
            with pytest.raises(SidewinderError) as caught:
                async with asyncio.timeout(PATIENCE_S):
                    await life.ensure()
            return caught.value
        finally:
            await cluster.close()
            await runner.cleanup()

    return asyncio.run(body())


def test_the_servers_certificate_is_expired(tmp_path: Path) -> None:
    error = asked(tmp_path, {"token": "t"}, until=-DAY)
    assert type(error) is DeviceFault
    assert "device 'k8s'" in str(error)
    assert "certificate has expired" in str(error)


@pytest.mark.parametrize("until_s", [1.7e9, 4e9], ids=["over", "good"])
def test_a_token_that_tells_its_end(until_s: float, tmp_path: Path) -> None:
    error = asked(tmp_path, {"token": jwt(until_s)})
    assert type(error) is DeviceFault
    is_over = until_s < 2e9
    assert ("The token of the kubeconfig expired on 2023-11-14 22:13 UTC: log in again" in str(error)) is is_over
    assert ("is expired or revoked: log in again" in str(error)) is not is_over


@pytest.mark.parametrize("token", ["opaque", "a.b.c", f"x.{b64('[]')}.y", f"x.{b64('{}')}.y"])
def test_a_token_that_tells_nothing(token: str, tmp_path: Path) -> None:
    assert "The token or certificate of the kubeconfig is expired or revoked" in str(asked(tmp_path, {"token": token}))


def test_a_client_certificate_that_is_over(tmp_path: Path) -> None:
    key = new_key()
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = Authority.new().sign(named("bench"), key, usage, until=-DAY)
    user = {"client-certificate-data": b64(certificate), "client-key-data": b64(pem(key))}
    assert "The client certificate of the kubeconfig expired on 20" in str(asked(tmp_path, user))


def test_a_kubeconfig_without_a_current_context(tmp_path: Path) -> None:
    error = asked(tmp_path, {"token": "t"}, context=None)
    assert type(error) is ConfigError
    assert "devices.k8s.context: the kubeconfig says no current context" in str(error)
    assert "kubeconfig has: c" in str(error)
