"""A watch: the pods of ours in one namespace as the API server tells them, while somebody waits for one.

One for all devices of a cluster and namespace. It goes on from the last version that it saw, and begins anew where the
server has forgotten that one (410). Where it may not watch, or is cut off, those who wait ask for themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from .kubernetes_cluster import Cluster
from .kubernetes_errors import Refused
from .kubernetes_spec import SELECTOR

PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 30.0


class Watch:
    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._changed: dict[str, asyncio.Event] = {}
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[Watch]:
        """It runs as long as somebody waits."""
        self._waiting += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._path}")
        try:
            yield self
        finally:
            self._waiting -= 1
            if self._waiting == 0 and self._task is not None:
                task, self._task = self._task, None
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def change(self, pod: str, limit_s: float) -> None:
        """Until something happened to that pod, or ``limit_s`` seconds: then it is time to look, too."""
        event = self._changed.setdefault(pod, asyncio.Event())
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await event.wait()
        event.clear()

    async def _run(self) -> None:
        import aiohttp

        version: str | None = None
        pause_s = PAUSE_S
        while True:
            try:
                if version is None:
                    version = await self._list()
                async for line in self._cluster.watch(self._path, self._query(version)):
                    version = self._take(line)
                    pause_s = PAUSE_S
                    if version is None:
                        break
            except Refused as error:
                if error.status == 410:
                    version = None
                else:
                    pause_s = min(MOST_PAUSE_S, 2 * pause_s)
                pause_s = max(pause_s, min(MOST_PAUSE_S, error.retry_after_s or 0.0))
            except (aiohttp.ClientError, OSError):  # whoever waits asks by himself and hears of it
                pause_s = min(MOST_PAUSE_S, 2 * pause_s)
            await asyncio.sleep(pause_s)

    @staticmethod
    def _query(version: str) -> dict[str, str]:
        return {"labelSelector": SELECTOR, "resourceVersion": version, "allowWatchBookmarks": "true"}

    async def _list(self) -> str:
        found = await self._cluster.request("GET", self._path, query={"labelSelector": SELECTOR})
        for event in self._changed.values():
            event.set()  # between the last version and this one anything may have happened
        return str(found["metadata"]["resourceVersion"])

    def _take(self, line: Mapping[str, Any]) -> str | None:
        """The version to go on from; None: from the beginning."""
        if line["type"] == "ERROR":
            return None
        metadata = line["object"]["metadata"]
        if line["type"] != "BOOKMARK" and metadata["name"] in self._changed:
            self._changed[metadata["name"]].set()
        return str(metadata["resourceVersion"])


_watches: WeakKeyDictionary[Cluster, dict[str, Watch]] = WeakKeyDictionary()


def watch_of(cluster: Cluster, namespace: str) -> Watch:
    return _watches.setdefault(cluster, {}).setdefault(namespace, Watch(cluster, namespace))
