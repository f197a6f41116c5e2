"""The Kubernetes error table: what the API server answers and what keeps us from asking it, as one of our errors.

What decides is the status code, the reason code, the class of an exception and what we looked at ourselves (may this
account do it?). Message text is for people, with one exception that says why.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

from sidewinder.errors import ConfigError, DeviceFault, SidewinderError, TransportError

OWN_KEYS: Final = ("kubeconfig", "context")
AGAIN: Final = frozenset({429, 500, 502, 503, 504})  # it may go well a moment later
# The quota's refusal has the code of every admission plugin's, 403 Forbidden, and no field of its own (in 1.36): the
# one place where text decides, and only between waiting and giving up at once.
_QUOTA_TEXT: Final = "exceeded quota"
_LOGIN: Final = "The token or certificate of the kubeconfig is expired or revoked"
_ROLE: Final = "The Role that is needed is printed by: sidewinder devices role"


class Refused(Exception):
    """The API server's answer to a request that it does not carry out."""

    def __init__(
        self, status: int, body: Mapping[str, Any] | None = None, *, retry_after_s: float | None = None
    ) -> None:
        body = body or {}
        self.status = status
        self.reason = str(body.get("reason") or "")
        self.message = str(body.get("message") or "").strip()
        self.details: Mapping[str, Any] = body.get("details") or {}
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.reason}: {self.message}" if self.message else f"HTTP status {status}")

    @property
    def is_quota(self) -> bool:
        return self.status == 403 and _QUOTA_TEXT in self.message


class Silent(Exception):
    """One of our own waits ended: ``what`` did not happen within ``limit_s``."""

    def __init__(self, what: str, limit_s: float) -> None:
        super().__init__(f"{what} within {limit_s:g} s")


def translate(error: BaseException, where: str, device: str, known: str = "") -> SidewinderError | None:
    """``where`` names device and cluster in front of every sentence; ``known`` says why it is refused (401, 403) where
    that was found out: which right is missing, since when the login is over. None: not in the table, a bug of ours."""
    import aiohttp

    if isinstance(error, ConfigError) and error.key in OWN_KEYS:  # a cluster is many devices', a key is one's own
        return ConfigError(error.rule, key=f"devices.{device}.{error.key}", value=error.value, hint=error.hint)
    if isinstance(error, SidewinderError):
        return error
    if isinstance(error, Refused):
        return _refused(error, where, device, known)
    if isinstance(error, Silent):
        return TransportError(f"{where}: no answer: {error}")
    if isinstance(error, TimeoutError):
        return TransportError(f"{where}: the API server did not answer in time")
    if isinstance(error, aiohttp.ClientConnectorCertificateError) or _is_untrusted(error):
        return DeviceFault(
            f"{where}: the API server's certificate is not trusted: {error}. Is the `certificate-authority` of "
            "that cluster right in the kubeconfig, is the certificate expired?"
        )
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return TransportError(f"{where}: the TLS connection failed: {error}. Is the client certificate expired?")
    if isinstance(error, aiohttp.InvalidURL):
        return ConfigError(
            f"{where}: the kubeconfig names no URL that can be used: {error}", key=f"devices.{device}.kubeconfig"
        )
    if isinstance(error, (aiohttp.ClientError, OSError)):
        return TransportError(
            f"{where}: the API server cannot be reached: {error or type(error).__name__}. Is the cluster up, and the "
            "`server` of the kubeconfig right from here (a VPN, a proxy)?"
        )
    return None


def _is_untrusted(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) or isinstance(error.__cause__, ssl.SSLCertVerificationError)


def _refused(error: Refused, where: str, device: str, known: str = "") -> SidewinderError:
    said = error.message or f"HTTP status {error.status}"
    if error.status == 401:
        return DeviceFault(
            f"{where}: the API server does not know who we are ({said}). {known or _LOGIN}: log in again, or name a "
            "kubeconfig that is up to date"
        )
    if error.status == 403:
        return DeviceFault(f"{where}: forbidden. {known or _ROLE}. The API server says: {said}")
    if error.status in (400, 422):
        return DeviceFault(f"{where}: the API server refuses it: {said}. Correct devices.{device}")
    if error.status in AGAIN or error.status in (408, 409, 410):
        return TransportError(f"{where}: the API server could not do it: {said}")
    return TransportError(f"{where}: an answer that was not expected: {said}")


def translate_admission(
    error: Refused, where: str, device: str, is_allowed: bool | None, known: str = ""
) -> SidewinderError:
    """Why a pod was not created. ``is_allowed``: whether this account may create pods; None: nobody could say."""
    said = error.message or f"HTTP status {error.status}"
    if error.status == 404:
        return DeviceFault(
            f"{where}: {said}. Make it (kubectl create namespace NAME), or name another: devices.{device}.namespace"
        )
    if error.status == 403 and is_allowed:
        return DeviceFault(
            f"{where}: the cluster refuses such a pod: {said}. A policy, an admission webhook or a LimitRange of that "
            f"namespace says so: correct devices.{device}, or ask who keeps the cluster"
        )
    if error.status >= 500 or error.status in AGAIN:
        return TransportError(f"{where}: the pod could not be created just now: {said}")
    if error.status in (401, 403):
        return _refused(error, where, device, known)
    return DeviceFault(f"{where}: the cluster refuses such a pod: {said}. Correct devices.{device}")
