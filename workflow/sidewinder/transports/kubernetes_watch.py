"""A watch: the pods of one namespace as the API server tells them, and the last that was seen of each of their lives.

One for all devices of a cluster and namespace, for as long as one of them is connected or waited for. It goes on from
the last version that it saw, and begins anew where the server has forgotten that one (410). Where it may not watch, or
is cut off, those who wait ask for themselves, and what they see is kept here too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from sidewinder.errors import SidewinderError
from sidewinder.model import EMPTY

from .kubernetes_cluster import Cluster
from .kubernetes_errors import Refused
from .kubernetes_spec import SELECTOR
from .kubernetes_verdict import Pod

PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 30.0
FORBIDDEN_PAUSE_S: Final = 300.0
KEPT: Final = 4  # lives of pods of one name whose end may still be asked for
OURS: Final[Mapping[str, str]] = {"labelSelector": SELECTOR}


class Seen(NamedTuple):
    """The last that was seen of a pod. ``is_gone``: the API server does not know it any more; ``is_last``: this is what
    it said of it at its end, reasons included."""

    pod: Pod
    is_gone: bool = False
    is_last: bool = False


class Watch:
    def __init__(self, cluster: Cluster, namespace: str, which: Mapping[str, str] = OURS) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._which = which
        self._changed: dict[str, asyncio.Event] = {}
        self._seen: dict[str, dict[str, Seen]] = {}  # by name, by uid: of the pods of connected devices
        self._attended: Counter[str] = Counter()
        self._users = 0
        self._task: asyncio.Task[None] | None = None

    # -- for as long as somebody needs it

    def attend(self, pod: str) -> None:
        """What happens to the pod of this name is kept, until ``leave``."""
        self._attended[pod] += 1
        self._enter()

    async def leave(self, pod: str) -> None:
        self._attended[pod] -= 1
        if not self._attended[pod]:
            del self._attended[pod]
            self._seen.pop(pod, None)
        await self._exit()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[Watch]:
        self._enter()
        try:
            yield self
        finally:
            await self._exit()

    def _enter(self) -> None:
        self._users += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._path}")

    async def _exit(self) -> None:
        self._users -= 1
        if self._users == 0 and self._task is not None:
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

    # -- what is known

    def last(self, name: str, uid: str) -> Seen | None:
        return self._seen.get(name, EMPTY).get(uid)

    def saw(self, pod: Pod, *, is_gone: bool = False) -> None:
        """An answer about a pod, from whomever; what is older than what is known is passed over."""
        metadata = pod["metadata"]
        name, uid = metadata["name"], metadata["uid"]
        if name not in self._attended:
            return
        lives = self._seen.setdefault(name, {})
        known = lives.get(uid)
        if known is not None and (known.is_last or _version(known.pod) > _version(pod)):
            return
        was_gone = known is not None and known.is_gone
        for other, seen in lives.items():
            if other != uid and _is_earlier(seen.pod, pod):
                lives[other] = seen._replace(is_gone=True)  # one name, one pod
        lives[uid] = Seen(pod, is_gone or was_gone, is_gone)
        while len(lives) > KEPT:
            del lives[next(iter(lives))]

    def missing(self, name: str) -> None:
        """The API server says that there is no pod of this name."""
        lives = self._seen.get(name, {})
        for uid, seen in lives.items():
            lives[uid] = seen._replace(is_gone=True)

    # -- watching

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
                    most_s = FORBIDDEN_PAUSE_S if error.status in (401, 403) else MOST_PAUSE_S
                    pause_s = min(most_s, 2 * pause_s)
                pause_s = max(pause_s, min(MOST_PAUSE_S, error.retry_after_s or 0.0))
            except (aiohttp.ClientError, OSError, SidewinderError):  # whoever waits asks by himself and hears of it
                pause_s = min(MOST_PAUSE_S, 2 * pause_s)
            await asyncio.sleep(pause_s)

    def _query(self, version: str) -> dict[str, str]:
        return {**self._which, "resourceVersion": version, "allowWatchBookmarks": "true"}

    async def _list(self) -> str:
        found = await self._cluster.request("GET", self._path, query=dict(self._which))
        pods = {pod["metadata"]["name"]: pod for pod in found.get("items") or ()}
        for name in list(self._attended):
            if name in pods:
                self.saw(pods[name])
            else:
                self.missing(name)
        for event in self._changed.values():
            event.set()  # between the last version and this one anything may have happened
        return str(found["metadata"]["resourceVersion"])

    def _take(self, line: Mapping[str, Any]) -> str | None:
        """The version to go on from; None: from the beginning."""
        if line["type"] == "ERROR":
            return None
        metadata = line["object"]["metadata"]
        if line["type"] != "BOOKMARK":
            if metadata["name"] in self._attended:
                self.saw(line["object"], is_gone=line["type"] == "DELETED")
            if metadata["name"] in self._changed:
                self._changed[metadata["name"]].set()
        return str(metadata["resourceVersion"])


def _version(pod: Pod) -> int:
    version = str(pod["metadata"].get("resourceVersion"))
    return int(version) if version.isdigit() else 0


def _is_earlier(pod: Pod, than: Pod) -> bool:
    """Whether it was made before; a late answer about the pod before must not bury the one that is there."""
    return _version(pod) <= _version(than)


_watches: WeakKeyDictionary[Cluster, dict[tuple[str, str], Watch]] = WeakKeyDictionary()


def watch_of(cluster: Cluster, namespace: str, pod: str | None = None) -> Watch:
    """``pod``: the name of one that Sidewinder did not make, so that no label tells it; None: all that it made."""
    which = OURS if pod is None else {"fieldSelector": f"metadata.name={pod}"}
    here = _watches.setdefault(cluster, {})
    return here.setdefault((namespace, pod or ""), Watch(cluster, namespace, which))
