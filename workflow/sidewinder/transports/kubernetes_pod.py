"""A pod's life: found, made, waited for, made anew, removed.

A pod whose digest is ours is used, one with another digest is replaced, a stranger's is never touched. Every wait is
bounded and says meanwhile why it lasts.
"""

from __future__ import annotations

import asyncio
import getpass
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

from sidewinder.agent.source import PYTHON_FLAGS
from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import Device

from . import kubernetes_access, kubernetes_exec
from .kubernetes_cluster import Cluster
from .kubernetes_errors import Refused, Silent, translate, translate_admission
from .kubernetes_spec import OWNER, SELECTOR, SPEC_HASH, Manifest, container_name, manifest, pod_name
from .kubernetes_verdict import (
    Container,
    Pod,
    annotation,
    container_of,
    device_of,
    hash_of,
    how_it_ended,
    is_ours,
    judge,
)
from .kubernetes_wait import GONE_TIMEOUT_S, Wait
from .kubernetes_watch import Seen, Watch, watch_of

READY_TIMEOUT_S: Final = 600.0
TOLD_LATE_S: Final = 2.0  # a watch tells of an end later than a request
LEAVING_S: Final = (0.5, 1.0, 1.5)
EVENTS: Final = 3  # that are told, the newest ones
OF_NO_CONCERN: Final = frozenset({"MissingClusterDNS"})  # a warning of some clusters about every pod

# Exit code 0 when nobody else was called in from outside: such a process has no parent in the container.
_IS_IN_USE: Final = """
import os, sys
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        try:
            with open("/proc/" + name + "/stat", "rb") as file:
                parent = file.read().rpartition(b")")[2].split()[1]
        except OSError:
            continue
        if parent == b"0":
            sys.exit(3)
"""

Tell = Callable[[str], None]


@lru_cache(maxsize=1)
def owner() -> str:
    """Who makes pods here."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


class PodLife:
    """One device's pod. Methods raise ``TransportError``, ``DeviceFault`` and ``ConfigError``."""

    def __init__(self, device: Device, cluster: Cluster, tell: Tell | None = None) -> None:
        self.device, self.cluster = device, cluster
        self.name, self.container = pod_name(device), container_name(device)
        self._tell = tell or (lambda _: None)
        self._namespace: str | None = device.settings.get("namespace")
        self.told = ""
        self.met = ""  # uid of the pod that was ready last: one that is not ready any more is another matter
        self._ready_life = ""  # of its container
        self._watch: Watch | None = None  # while a device is connected: what becomes of its pod is kept

    @property
    def creates(self) -> bool:
        return bool(self.device.settings.get("create", bool(self.device.settings.get("image"))))

    @property
    def where(self) -> str:
        place = f"namespace {self._namespace}, " if self._namespace else ""
        return f"device {self.device.id!r} (pod {self.name}, {place}{self.cluster})"

    @asynccontextmanager
    async def translated(self) -> AsyncIterator[None]:
        """The border: whatever leaves is one of our errors."""
        try:
            yield
        except Exception as error:
            status = error.status if isinstance(error, Refused) else 0
            known = await self._lacks() if status == 403 else self.cluster.login_ended() if status == 401 else ""
            ours = translate(error, self.where, self.device.id, known)
            if ours is None or ours is error:
                raise
            raise ours from error

    async def namespace(self) -> str:
        if self._namespace is None:
            self._namespace = await self.cluster.namespace()
        return self._namespace

    async def path(self, rest: str = "", kind: str = "pods") -> str:
        return f"/api/v1/namespaces/{await self.namespace()}/{kind}{rest}"

    async def missing_rights(self) -> list[kubernetes_access.Right] | None:
        """None: this account may not even ask. Raises what ``Cluster.request`` raises."""
        rights = kubernetes_access.rights_for(makes=self.creates)
        return await kubernetes_access.missing(self.cluster, await self.namespace(), rights)

    async def _lacks(self) -> str:
        """The right that this account misses, in words; empty where that is not it, or nobody can say."""
        try:
            missing = await self.missing_rights() or []
            rights = [right for right in missing if right.is_needed]
            who = await kubernetes_access.account(self.cluster) if rights else None
            is_all = len(missing) == len(kubernetes_access.rights_for(makes=self.creates))
            return kubernetes_access.lacks(rights, await self.namespace(), who, is_all=is_all)
        except Exception as error:
            if translate(error, self.where, self.device.id) is None:
                raise
            return ""  # the refusal itself is what is told

    # -- looking

    async def attend(self) -> None:
        """From now on what becomes of the pod is kept, until ``leave``: when it has ended it may be gone at once."""
        if self._watch is None:
            watch = await self._watch_of()
            if self._watch is None:
                self._watch = watch
                watch.attend(self.name)

    async def leave(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.leave(self.name)

    async def _watch_of(self) -> Watch:
        await self.path()
        assert self._namespace is not None
        is_made = bool(self.device.settings.get("image"))
        return watch_of(self.cluster, self._namespace, None if is_made else self.name)

    async def find(self) -> Pod | None:
        """The pod as the API server knows it now; None: there is none, which is an answer, not a failure to look."""
        try:
            found: Pod = await self.cluster.request("GET", await self.path(f"/{self.name}"))
        except Refused as error:
            if error.status == 404:
                if self._watch is not None:
                    self._watch.missing(self.name)
                return None
            raise
        if self._watch is not None:
            self._watch.saw(found)
        return found

    async def changed(self, limit_s: float) -> None:
        """Until something happened to the pod, or ``limit_s`` seconds."""
        await self.attend()
        assert self._watch is not None
        await self._watch.change(self.name, limit_s)

    async def last_seen(self, uid: str) -> Seen | None:
        """The last of that pod, looked at now as well; None: nothing was ever seen of it."""
        await self.attend()
        watch = self._watch
        assert watch is not None
        seen = watch.last(self.name, uid)
        if seen is not None and seen.is_last:
            return seen
        await self.find()
        end_s = asyncio.get_running_loop().time() + TOLD_LATE_S
        while (seen := watch.last(self.name, uid)) is not None and seen.is_gone and not seen.is_last:
            # why it went stands in its last status, which the watch brings a moment later than a 404
            left_s = end_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                break
            await watch.change(self.name, left_s)
        return seen

    async def ours(self) -> list[Pod]:
        """Every pod in that namespace that Sidewinder made, for whomever."""
        async with self.translated():
            found = await self.cluster.request("GET", await self.path(), query={"labelSelector": SELECTOR})
            return list(found.get("items") or ())

    async def events(self, uid: str, known: str) -> str:
        """What the cluster last said of it beyond what is ``known``; empty where that is nothing, or we may not ask."""
        query = {"fieldSelector": f"involvedObject.uid={uid},type=Warning"}
        try:
            found = await self.cluster.request("GET", await self.path(kind="events"), query=query)
        except (Refused, TransportError):
            return ""
        items = sorted(found.get("items") or (), key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime")))
        said = [(str(one.get("reason")), str(one.get("message")).strip()) for one in items]
        new = [
            f"{reason}: {message}"
            for reason, message in said
            if reason not in OF_NO_CONCERN and message.removeprefix("Error: ") not in known
        ]
        return "; ".join(new[-EVENTS:])

    async def what_became(self, before: Container) -> str:
        """Why a stream into that life of the container broke, as far as the API server knows."""
        pod = await self.find()
        if pod is None:
            return "the pod was deleted"
        if pod["metadata"]["uid"] != before.uid:
            return "the pod was deleted and made anew"
        verdict = judge(pod, self.container)
        now = container_of(pod, self.container)
        if now is not None and now.identity != before.identity:
            return f"its container was restarted ({how_it_ended(pod, self.container)})"
        if verdict.state in ("terminating", "over"):
            return verdict.why
        if now is None:
            return f"its container does not run: {verdict.why}"
        return f"the cluster says that its container still runs{f' ({verdict.why})' if verdict.why else ''}"

    # -- having it

    async def ensure(self) -> tuple[Pod, Container]:
        """The pod, ready, and the life of its container."""
        async with self.translated():
            limit_s = float(self.device.settings.get("ready_timeout_s", READY_TIMEOUT_S))
            await self.path()
            self.told = ""
            found = await self.find()
            is_here = found is not None and not found["metadata"].get("deletionTimestamp")
            ready = self.ready(found) if found is not None and is_here and self.is_right(found) else None
            if ready is not None:  # as nearly always: nothing is waited for
                return ready
            async with (await self._watch_of()).waiting() as watch:
                return await Wait(self, limit_s, watch.change).until_ready(found)

    def ready(self, pod: Pod) -> tuple[Pod, Container] | None:
        """Who was ready once in this life of the container is called into as long as it runs: "not ready" says then
        that its node was not heard of, or a probe of somebody's failed; whether the call arrives says more."""
        container, state = container_of(pod, self.container), judge(pod, self.container).state
        is_known = container is not None and container.identity == self._ready_life
        if container is None or not (state == "ready" or (state == "waiting" and is_known)):
            return None
        self.met, self._ready_life = container.uid, container.identity
        return pod, container

    def is_right(self, pod: Pod) -> bool:
        """Whether it is what the config describes. Raises ``DeviceFault`` about a stranger's."""
        wanted = self._manifest()
        if wanted is None:
            return True  # nothing is described: whatever is there
        if not is_ours(pod):
            raise DeviceFault(
                f"{self.where}: there is a pod of that name that Sidewinder did not make; it was not touched. Name "
                f"another: devices.{self.device.id}.pod; to measure in that one leave `image` out"
            )
        if hash_of(pod) == wanted["metadata"]["annotations"][SPEC_HASH]:
            return True
        theirs, whose = device_of(pod), annotation(pod, OWNER)
        if theirs != self.device.id:
            raise DeviceFault(
                f"{self.where}: that pod belongs to device {theirs!r}; it was not touched. Name another: "
                f"devices.{self.device.id}.pod"
            )
        if not self.creates:
            raise DeviceFault(
                f"{self.where}: the pod is not the one that the config describes (digest {hash_of(pod)}), and "
                f"`create: false` keeps us from making it. Let an account that may do it: sidewinder devices up "
                f"{self.device.id}"
            )
        if whose != owner():
            raise DeviceFault(
                f"{self.where}: that pod was made by {whose} from another config; it was not touched, a run may go on "
                f"in it. Name another: devices.{self.device.id}.pod, or remove it: sidewinder devices down "
                f"{self.device.id} --force"
            )
        return False

    def _manifest(self) -> Manifest | None:
        return manifest(self.device, owner()) if self.device.settings.get("image") else None

    async def in_use(self, pod: Pod) -> bool:
        """Whether somebody has a command running in it. Who cannot be asked counts as in use."""
        container = pod["spec"]["containers"][0]
        container = next((one for one in pod["spec"]["containers"] if one["name"] == self.container), container)
        if container_of(pod, container["name"]) is None or not container.get("command"):
            return False
        argv = [container["command"][0], *PYTHON_FLAGS, "-c", _IS_IN_USE]
        try:
            ended, _ = await kubernetes_exec.run(
                self.cluster, await self.path(f"/{self.name}"), container["name"], argv
            )
        except (Refused, Silent):
            return True
        return ended is None or ended.code != 0

    async def _stays_in_use(self, pod: Pod) -> bool:
        for pause_s in (*LEAVING_S, None):  # who left a moment ago may not be gone yet
            if not await self.in_use(pod):
                return False
            await asyncio.sleep(pause_s or 0.0)
        return True

    def say(self, why: str) -> None:
        if why and why != self.told:
            self.told = why
            self._tell(why)

    async def create(self) -> None:
        """Raises ``Refused`` for a quota that is used up: it may be free a moment later."""
        wanted = self._manifest()
        assert wanted is not None
        try:
            await self.cluster.request("POST", await self.path(), body=wanted)
        except Refused as error:
            if error.status == 409 or error.is_quota:
                raise
            allowed, lacks = None, ""
            if error.status == 403:
                allowed = await kubernetes_access.may(
                    self.cluster, kubernetes_access.CREATE_PODS, await self.namespace()
                )
                lacks = "" if allowed else await self._lacks()
            raise translate_admission(error, self.where, self.device.id, allowed, lacks) from error

    async def delete(self, uid: str | None) -> None:
        """Asks for it; it is gone when ``find`` says so. Only that very pod: its successor has another uid."""
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self.cluster.request("DELETE", await self.path(f"/{self.name}"), body=body)
        except Refused as error:
            if error.status not in (404, 409):
                raise

    async def remove(self, *, force: bool = False, limit_s: float = GONE_TIMEOUT_S) -> bool:
        """Our pod is gone when this returns. False: there was none. Raises ``DeviceFault`` about a stranger's, and
        without ``force`` about one that is in use or that somebody else made."""
        async with self.translated():
            found = await self.find()
            if found is None:
                return False
            if not is_ours(found):
                raise DeviceFault(f"{self.where}: Sidewinder did not make that pod; it was not touched")
            whose = annotation(found, OWNER)
            if whose != owner() and not force:
                raise DeviceFault(
                    f"{self.where}: it was made by {whose}; it was not touched. With --force it is removed"
                )
            if not force and await self._stays_in_use(found):
                raise DeviceFault(
                    f"{self.where}: it is in use (a sweep measures in it, a person's command runs there) or cannot be "
                    "asked; it was not touched. With --force it is removed"
                )
            uid = found["metadata"]["uid"]
            await self.delete(uid)
            end_s = asyncio.get_running_loop().time() + limit_s
            while found is not None and found["metadata"]["uid"] == uid:
                if asyncio.get_running_loop().time() >= end_s:
                    raise TransportError(f"{self.where}: it is being deleted since {limit_s:g} s. Is its node gone?")
                await asyncio.sleep(0.3)
                found = await self.find()
            return True
