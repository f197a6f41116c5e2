"""A cluster: one context of a kubeconfig, and the one HTTP client that all its devices share.

Clusters are shared per event loop and closed by the last device that leaves. An answer that may be another one a moment
later is asked for again, as long as the server wishes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

from sidewinder.errors import TransportError
from sidewinder.model import Device

from .kubernetes_errors import AGAIN, Refused, Silent
from .kubernetes_login import ended, kubeconfig_of, log_in

if TYPE_CHECKING:
    from aiohttp import ClientSession, ClientWebSocketResponse
    from kubernetes_asyncio.client import ApiClient

LOGIN_S: Final = 60.0  # a credential plugin may ask a server of its own
REQUEST_S: Final = 15.0
HANDSHAKE_S: Final = 15.0
TRY_S: Final = 2.5  # on a link that is away each packet that asks for a connection is sent again later than the last
PAUSES_S: Final = (0.2, 0.5, 1.0, 2.0)
MOST_PAUSE_S: Final = 30.0  # however long the server says that we shall wait
WATCH_S: Final = 300  # the server ends a watch then; it goes on where it was
PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")

Query = Mapping[str, str | Sequence[str]]


class Cluster:
    """``request``, ``watch`` and ``stream`` raise ``Refused``, ``ConfigError``, and what aiohttp and the system raise:
    ``kubernetes_errors.translate`` knows them all."""

    def __init__(self, kubeconfig: str, context: str | None) -> None:
        self.kubeconfig, self.context = kubeconfig, context
        self.requests = 0  # that were sent, for the benchmark and for tests
        self.users = 0
        self._namespace = "default"
        self._api: ApiClient | None = None
        self._outlived: list[ApiClient] = []
        self._login = asyncio.Lock()

    def __str__(self) -> str:
        return f"context {self.context!r}" if self.context else "the current context"

    # -- the way in

    async def _logged_in(self) -> ApiClient:
        async with self._login:
            if self._api is None:
                try:
                    async with asyncio.timeout(LOGIN_S):
                        self._api, self._namespace = await log_in(self.kubeconfig, self.context)
                except TimeoutError:
                    raise Silent("the credentials of the kubeconfig were not had", LOGIN_S) from None
            return self._api

    async def namespace(self) -> str:
        """The context's own."""
        await self._logged_in()
        return self._namespace

    async def _outlive(self, api: ApiClient) -> None:
        """Who asks next logs in anew. What others have open on this login goes on: streams know no token any more."""
        async with self._login:
            if self._api is api:
                self._api = None
                self._outlived.append(api)

    def login_ended(self) -> str:
        """Since when our credentials are over, in words; empty: they are not, or do not say."""
        return ended(self._api) if self._api is not None else ""

    # -- asking

    async def request(self, method: str, path: str, *, query: Query | None = None, body: Any = None) -> Any:
        """The answer's JSON. Asked again where the server is overloaded or fails, with the pause that it names."""
        logged_in_again = False
        pauses = list(PAUSES_S)
        while True:
            api = await self._logged_in()
            try:
                return await self._request(api, method, path, query, body)
            except Refused as error:
                if error.status == 401 and not logged_in_again:
                    logged_in_again = True  # a token lives for an hour or less
                    await self._outlive(api)
                    continue
                if error.status not in AGAIN or not pauses:
                    raise
                pause_s = pauses.pop(0)
                await asyncio.sleep(min(MOST_PAUSE_S, max(pause_s, error.retry_after_s or 0.0)))

    async def _request(self, api: ApiClient, method: str, path: str, query: Query | None, body: Any) -> Any:
        import aiohttp

        self.requests += 1
        arguments = await _arguments(api)
        if body is not None:
            arguments["json"] = body
        limit = aiohttp.ClientTimeout(total=REQUEST_S)
        async with _session(api).request(method, _url(api, path, query), timeout=limit, **arguments) as response:
            data = await response.read()
            if response.status >= 300:
                raise Refused(response.status, _json(data), retry_after_s=_seconds(response.headers.get("Retry-After")))
            found = _json(data)
            if found is None:
                raise TransportError(f"{self}: the API server's answer to {method} {path} is no JSON")
            return found

    async def watch(self, path: str, query: Query) -> AsyncIterator[Mapping[str, Any]]:
        """The lines of a watch, until the server ends it."""
        import aiohttp

        api = await self._logged_in()
        self.requests += 1
        limit = aiohttp.ClientTimeout(total=WATCH_S + REQUEST_S, sock_connect=REQUEST_S)
        wanted = {**query, "watch": "true", "timeoutSeconds": str(WATCH_S)}
        arguments = await _arguments(api)
        async with _session(api).get(_url(api, path, wanted), timeout=limit, **arguments) as response:
            if response.status == 401:
                await self._outlive(api)  # whoever watches tries again
            if response.status >= 300:
                data = await response.read()
                raise Refused(response.status, _json(data), retry_after_s=_seconds(response.headers.get("Retry-After")))
            async for line in response.content:
                found = _json(line)
                if found is None:
                    raise TransportError(f"{self}: a line of a watch is no JSON")
                yield found

    async def stream(self, path: str, query: Query, *, is_again: bool = False) -> ClientWebSocketResponse[Any]:
        """A web socket of the exec kind. ``is_again``: there was one before, so a link may be away that comes back."""
        for is_last in (False, True):
            api = await self._logged_in()
            try:
                return await self._stream(path, query, is_again)
            except Refused as error:
                if error.status != 401 or is_last:
                    raise
                await self._outlive(api)
        raise AssertionError("unreachable")

    async def _stream(self, path: str, query: Query, is_again: bool) -> ClientWebSocketResponse[Any]:
        """One handshake has all the time. Beside it a fresh one every now and then finds a link that is back sooner."""
        patient = asyncio.create_task(self._handshake(path, query, HANDSHAKE_S))
        tries, found = {patient}, patient
        try:
            while True:
                limit_s = TRY_S if is_again and len(tries) == 1 else None  # the fresh one ends by itself
                done, _ = await asyncio.wait(tries, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                for found in done:
                    if found is patient or not isinstance(found.exception(), Silent):
                        return found.result()
                tries = {patient, asyncio.create_task(self._handshake(path, query, TRY_S))}
        finally:
            rest = tries - {found} if found.done() else tries
            for one in rest:
                one.cancel()
            for late in await asyncio.gather(*rest, return_exceptions=True):
                if not isinstance(late, BaseException):
                    await late.close()

    async def _handshake(self, path: str, query: Query, limit_s: float) -> ClientWebSocketResponse[Any]:
        import aiohttp

        api = await self._logged_in()
        self.requests += 1
        arguments = await _arguments(api)
        try:
            async with asyncio.timeout(limit_s):
                opened: ClientWebSocketResponse[Any] = await _session(api).ws_connect(
                    _url(api, path, query),
                    protocols=PROTOCOLS,
                    max_msg_size=0,
                    heartbeat=None,  # its answer may be the API server's own: the agent is asked instead
                    timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
                    **arguments,
                )
                return opened
        except TimeoutError:
            raise Silent("no stream was opened", limit_s) from None
        except aiohttp.WSServerHandshakeError as error:
            raise Refused(error.status) from error  # its message says nothing of why

    async def close(self) -> None:
        async with self._login:
            apis, self._api, self._outlived = [*self._outlived, self._api], None, []
            for api in apis:
                if api is not None:
                    await api.close()


def _session(api: ApiClient) -> ClientSession:
    session: ClientSession = api.rest_client.pool_manager
    return session


async def _arguments(api: ApiClient) -> dict[str, Any]:
    rest = api.rest_client
    headers = {one["key"]: one["value"] for one in (await api.configuration.auth_settings()).values()}
    found: dict[str, Any] = {"headers": headers}
    for name, value in (
        ("proxy", rest.proxy),
        ("proxy_headers", rest.proxy_headers),
        ("server_hostname", rest.server_hostname),
    ):
        if value:
            found[name] = value
    return found


def _url(api: ApiClient, path: str, query: Query | None) -> str:
    text = urlencode(query or {}, doseq=True)
    return f"{api.configuration.host}{path}" + (f"?{text}" if text else "")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def _seconds(text: str | None) -> float | None:
    """``Retry-After`` in seconds; its other form, a date, is not used by API servers."""
    return float(text) if text and text.isdigit() else None


# -- one for all devices of a loop

_clusters: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[str, str | None], Cluster]] = WeakKeyDictionary()


def enter(device: Device) -> Cluster:
    """The cluster of a device, for as long as it does not ``leave``."""
    here = _clusters.setdefault(asyncio.get_running_loop(), {})
    key = kubeconfig_of(device), device.settings.get("context")
    cluster = here.setdefault(key, Cluster(*key))
    cluster.users += 1
    return cluster


async def leave(cluster: Cluster) -> None:
    cluster.users -= 1
    if cluster.users == 0:
        here = _clusters.get(asyncio.get_running_loop(), {})
        here.pop((cluster.kubeconfig, cluster.context), None)
        await cluster.close()
