"""Certificates that live as long as a test: of a server, and of a client whose time is over."""

from __future__ import annotations

import base64
import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.kubernetes.helpers_cluster import Namespace

DAY = datetime.timedelta(days=1)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def named(name: str, *organisations: str) -> x509.Name:
    units = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organisations]
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(key: ec.EllipticCurvePrivateKey) -> str:
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*form).decode()


class Authority:
    """Signs certificates."""

    def __init__(self, name: x509.Name, key: Any, certificate: str | None = None) -> None:
        self._name, self._key = name, key
        basic = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = certificate or self.sign(name, key, basic, critical=True)

    @classmethod
    def new(cls) -> Authority:
        return cls(named("authority of a test"), new_key())

    @classmethod
    def of(cls, folder: Path) -> Authority:
        """One whose certificate and key lie there."""
        text = (folder / "ca.crt").read_text()
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        return cls(x509.load_pem_x509_certificate(text.encode()).subject, key, text)

    def sign(
        self, whose: x509.Name, key: Any, extension: Any, *, critical: bool = False, until: datetime.timedelta = DAY
    ) -> str:
        made = (
            x509.CertificateBuilder(self._name, whose, key.public_key(), x509.random_serial_number())
            .not_valid_before(now() - 30 * DAY)
            .not_valid_after(now() + until)
            .add_extension(extension, critical=critical)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()


def server(name: str) -> tuple[str, str]:
    """An authority's certificate, and key and certificate of a server of that name."""
    authority, key = Authority.new(), new_key()
    return authority.certificate, pem(key) + authority.sign(
        named("webhook of a test"), key, x509.SubjectAlternativeName([x509.DNSName(name)])
    )


def expired_client(namespace: Namespace) -> dict[str, Any]:
    """Credentials for a kubeconfig that were good until yesterday; by the cluster's own authority where it is at hand,
    else by a stranger's: to the API server it is the same."""
    folder = Path(namespace.cluster.kubeconfig).parent / "pki"
    authority = Authority.of(folder) if (folder / "ca.key").exists() else Authority.new()
    key = new_key()
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = authority.sign(named("bench", "system:masters"), key, usage, until=-DAY)
    return {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(pem(key).encode()).decode(),
    }
