"""The Kubernetes transport: a pod on a cluster, reached by commands that run in its container.

The pod is had first (made, waited for, made anew where it is gone), then a front is started in it. With a
container everything that ran in it is gone: each life of a container is a boot of its own for the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from sidewinder.agent.source import BOOTSTRAP, PYTHON_FLAGS
from sidewinder.errors import DeviceFault, TransportError
from sidewinder.model import EMPTY, Device, Failure, Json

from . import kubernetes_cluster, kubernetes_exec
from .base import Channel
from .kubernetes_channel import PodChannel
from .kubernetes_errors import Refused, Silent
from .kubernetes_facts import check_granted, pod_facts
from .kubernetes_limits import sentence, unlike_inside
from .kubernetes_lives import Lives
from .kubernetes_pod import PodLife
from .kubernetes_spec import python_of, workdir_of
from .kubernetes_verdict import Container, Pod

PAUSES_S: Final = (0.3, 0.6, 1.2, 2.4)  # between tries at a pod that changes while a front is started in it
# M-86: what a way that goes through a shell would change
_CANARY: Final = "a 'b' \"c\" $HOME `d` \\e (f) *g* !h\n;i|j"
_ECHO: Final = "import sys;sys.stdout.buffer.write(sys.argv[1].encode('utf-8','surrogateescape'))"


class KubernetesTransport:
    """Opens fronts in the container of one device's pod. ``tell`` is told why a pod is waited for."""

    def __init__(self, device: Device, *, state_dir: str | None = None, **agent_options: Any) -> None:
        self.device = device
        self.tell: Callable[[str], None] = lambda _: None
        self.facts: Mapping[str, Json] = EMPTY
        self.agent_options: dict[str, Any] = {**agent_options, "state_dir": state_dir or workdir_of(device)}
        self._life: PodLife | None = None
        self._lives = Lives()
        self._is_honest = False
        self._opening = asyncio.Lock()

    async def open(self) -> Channel:
        """Raises ``ConfigError`` too: a kubeconfig that is not on the controller is nobody else's fault."""
        async with self._opening:
            life = self._entered()
            async with life.translated():
                await life.attend()
            for pause_s in (*PAUSES_S, None):
                pod, container = await life.ensure()
                async with life.translated():
                    await self._lives.until_over(life, container.identity)
                    channel = await self._front(life, pod, container, is_last=pause_s is None)
                if channel is not None:
                    return channel
                await asyncio.sleep(pause_s or 0.0)
        raise TransportError(f"{life.where}: its container was started anew each time that a front was called into it")

    def _entered(self) -> PodLife:
        if self._life is None:
            cluster = kubernetes_cluster.enter(self.device)
            self._life = PodLife(self.device, cluster, lambda why: self.tell(why))
        return self._life

    async def is_there(self) -> bool:
        """Whether a front can be called into it with nothing made and nothing waited for. One request; raises as
        ``open`` does."""
        life = self._entered()
        async with life.translated():
            pod = await life.find()
            if pod is None or pod["metadata"].get("deletionTimestamp"):
                return False
            return life.is_right(pod) and life.ready(pod) is not None

    def check(self, facts: Mapping[str, Json]) -> None:
        """Whether what holds inside the container is what was asked for, whatever the cluster says of it. Raises
        ``DeviceFault``."""
        limits = (facts.get("placement") or EMPTY).get("cgroup") or EMPTY
        where = self._life.where if self._life is not None else f"device {self.device.id!r}"
        why = "read inside its container; does its kubelet enforce quotas, was it resized a moment ago?"
        if said := sentence(unlike_inside(limits, self.device), self.device, where, why):
            raise DeviceFault(said)

    def ran_in(self, boot: str) -> None:
        """An earlier controller started something in this life of the container."""
        self._lives.ran_in(boot)

    async def death_of(self, boot: str) -> Failure | None:
        """How that life of the container ended, and what proves it; None: it is not known to be over. Raises
        ``TransportError``, ``DeviceFault``, ``ConfigError``."""
        life = self._entered()
        async with life.translated():
            return await self._lives.death_of(life, boot)

    async def _front(self, life: PodLife, pod: Pod, container: Container, *, is_last: bool) -> PodChannel | None:
        """None: not in this life of the container, or not just now."""
        try:
            if not self._is_honest and not await self._starts_commands(life) and not is_last:
                return None  # a container that ended a moment ago, or no such Python: then the front will say so
            argv = [python_of(self.device), *PYTHON_FLAGS, "-c", BOOTSTRAP]
            is_again = self.agent_options.get("boot_id") == container.identity
            path = await life.path(f"/{life.name}")
            stream = await kubernetes_exec.start(life.cluster, path, life.container, argv, is_again=is_again)
        except Silent as error:
            became = await life.what_became(container)
            raise TransportError(f"{life.where}: no answer: {error}; {became}") from error
        except Refused as error:
            # 404 and 500 come from a kubelet that is away as well as from a container that ended, which the pod's
            # status tells a second or two late. So it is looked at again, and only then given up.
            if error.status not in (400, 404, 500):
                raise
            if is_last and await self._is_same(life, container):
                raise TransportError(
                    f"{life.where}: the pod is there, but no command can be started in it just now (HTTP status "
                    f"{error.status}): is the kubelet of {container.node} away?"
                ) from error
            return None
        try:
            # Between the look and the start the container may have ended: then this is the front of another life.
            if await self._is_same(life, container):
                check_granted(life, pod)
                self.facts = {"pod": await pod_facts(life, pod, container)}
                self.agent_options["boot_id"] = container.identity
                channel = PodChannel(stream, life, container)
                self._lives.entered(container.identity, channel)
                return channel
        except BaseException:
            await stream.close()
            raise
        await stream.close()
        return None

    @staticmethod
    async def _is_same(life: PodLife, container: Container) -> bool:
        pod = await life.find()
        now = life.ready(pod) if pod is not None else None
        return now is not None and now[1].identity == container.identity

    async def _starts_commands(self, life: PodLife) -> bool:
        """Once, before the first measurement: whether a command gets its arguments as they are (M-86)."""
        argv = [python_of(self.device), *PYTHON_FLAGS, "-c", _ECHO, _CANARY]
        ended, out = await kubernetes_exec.run(life.cluster, await life.path(f"/{life.name}"), life.container, argv)
        if ended is None:
            raise TransportError(f"{life.where}: the first command in it had no end: the link broke")
        if ended.code == 0 and out != _CANARY.encode():
            raise DeviceFault(
                f"{life.where}: arguments are changed on the way into the container: {_CANARY!r} arrived as "
                f"{out.decode('utf-8', 'replace')!r}. Is there a wrapper in the place of {python_of(self.device)}?"
            )
        self._is_honest = ended.code == 0
        return ended.code is not None

    async def close(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            await life.leave()
            await kubernetes_cluster.leave(life.cluster)
