"""A wait: for a pod that is not there yet, is not the right one or not ready. It always ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

from sidewinder.errors import DeviceFault, SidewinderError, TransportError

from .kubernetes_errors import Refused
from .kubernetes_verdict import Container, Pod, Verdict, is_ours, judge

if TYPE_CHECKING:
    from .kubernetes_pod import PodLife

GONE_TIMEOUT_S: Final = 120.0  # a pod that is being deleted: its grace period, and a kubelet that takes its time
LOOK_S: Final = 5.0  # at the latest, however silent the watch is
SOON_S: Final = 3.0
QUOTA_PAUSE_S: Final = 5.0
IN_USE_PAUSE_S: Final = 5.0
AGAIN_S: Final = 20.0  # for a pod that was ready before
_ABOUT: Final = {
    "image": (
        "its image cannot be had",
        "Correct {device}.image (or its image_pull_policy, image_pull_secrets), or bring it to the nodes",
    ),
    "reference": ("its container cannot be created", "Correct {device}"),
    "command": (
        "its first process, a Python, cannot be started",
        "Name a Python 3.7 or newer of that image by {device}.python, or take an image that has one",
    ),
    "crash": ("its container does not stay up", "Correct {device}.image or {device}.python"),
}


class Wait:
    """One wait for a pod that is not there yet, or not the right one, or not ready."""

    def __init__(self, life: PodLife, limit_s: float, change: Callable[[str, float], Awaitable[None]]) -> None:
        self._life, self._change, self._limit_s = life, change, limit_s
        self._now_s = asyncio.get_running_loop().time
        self._began_s = self._now_s()
        self._made = 0
        self._since: dict[tuple[str, str], float] = {}  # when a verdict was seen first
        self._terminating: tuple[str, float] = ("", 0.0)

    async def until_ready(self, pod: Pod | None) -> tuple[Pod, Container]:
        life = self._life
        while True:
            pause_s = LOOK_S
            if pod is None:
                pause_s = await self._make()
            elif pod["metadata"].get("deletionTimestamp"):
                self._check_terminating(pod)
            elif not life.is_right(pod):
                pause_s = await self._replace(pod)
            else:
                ready = life.ready(pod)
                if ready is not None:
                    return ready
                pause_s = await self._look(pod, judge(pod, life.container))
            limit_s = self._limit_of(pod)
            left_s = self._began_s + limit_s - self._now_s()
            if left_s <= 0:
                await self._give_up(pod, limit_s)
            if pause_s:
                await self._change(life.name, max(0.05, min(pause_s, left_s)))
            pod = await life.find()

    def _limit_of(self, pod: Pod | None) -> float:
        """A pod that was ready before is waited for shortly: who calls waits by himself for what is away."""
        if pod is None or pod["metadata"]["uid"] != self._life.met or pod["metadata"].get("deletionTimestamp"):
            return self._limit_s
        return min(self._limit_s, AGAIN_S)

    async def _replace(self, pod: Pod) -> float:
        life = self._life
        if await life.in_use(pod):
            # another controller of the same person, with another config: each would take the other's pod away
            life.say("its pod has another specification and is in use by another controller; it is waited for")
            return IN_USE_PAUSE_S
        life.say("its pod has another specification and is replaced")
        await life.delete(pod["metadata"]["uid"])
        return 0.0

    async def _make(self) -> float:
        life = self._life
        if not life.creates:
            life.say("the pod is not there; it is waited for, because `create: false`")
            return 1.0
        try:
            await life.create()
        except Refused as error:
            if error.is_quota:
                life.say(f"a quota refuses the pod: {error.message}")
                return QUOTA_PAUSE_S
            return 0.2  # 409: somebody made it at the same moment, or its predecessor is not quite gone
        self._made += 1
        life.say("its pod was created")
        return 1.0

    def _check_terminating(self, pod: Pod) -> None:
        life, uid = self._life, pod["metadata"]["uid"]
        if self._terminating[0] != uid:
            self._terminating = (uid, self._now_s())
        life.say("a pod of that name is being deleted; it is waited for")
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if self._now_s() - self._terminating[1] > GONE_TIMEOUT_S + grace_s:
            raise TransportError(
                f"{life.where}: the pod is being deleted since {GONE_TIMEOUT_S + grace_s:.0f} s and still there. "
                f"Is its node ({pod['spec'].get('nodeName')}) gone? A run may go on there: it is not forced away"
            )

    async def _look(self, pod: Pod, verdict: Verdict) -> float:
        life, uid = self._life, pod["metadata"]["uid"]
        if verdict.state == "over":
            if not life.creates:
                raise TransportError(f"{life.where}: the pod is over ({verdict.why}), and `create: false`")
            if self._made > 1:
                raise TransportError(f"{life.where}: the pod ends as soon as it is made ({verdict.why})")
            life.say(f"its pod is over ({verdict.why}) and is made anew")
            await life.delete(uid)
            return 0.2
        if verdict.state == "hopeless":
            since_s = self._since.setdefault((uid, verdict.cause), self._now_s())
            stood_s = self._now_s() - since_s
            if stood_s >= verdict.after_s:
                await self._fail(pod, verdict)
            life.say(verdict.why)
            return min(LOOK_S, verdict.after_s - stood_s)
        waited_s = self._now_s() - self._began_s
        if waited_s < SOON_S:  # as every pod takes a moment: nothing to speak of
            return SOON_S - waited_s
        life.say(await self._why(pod, verdict))
        return LOOK_S

    async def _why(self, pod: Pod, verdict: Verdict) -> str:
        events = "" if "Unschedulable" in verdict.why else await self._life.events(pod["metadata"]["uid"], verdict.why)
        return f"{verdict.why}: {events}" if events else verdict.why

    async def _fail(self, pod: Pod, verdict: Verdict) -> NoReturn:
        life, device = self._life, self._life.device.id
        events = await life.events(pod["metadata"]["uid"], verdict.why)
        await self._give_back(pod)
        text, remedy = _ABOUT[verdict.cause]
        said = f". Events: {events}" if events else ""
        # what to do comes first: what container runtimes say is long, and the end of a line is cut on a display
        remedy = remedy.format(device=f"devices.{device}")
        raise DeviceFault(f"{life.where}: {text}. {remedy}. The cluster says: {verdict.why}{said}")

    async def _give_up(self, pod: Pod | None, limit_s: float) -> NoReturn:
        life = self._life
        why = life.told
        is_there = pod is not None and not pod["metadata"].get("deletionTimestamp")
        if pod is not None and is_there and life.is_right(pod):
            why = await self._why(pod, judge(pod, life.container)) or why
            await self._give_back(pod)
        said, device = why.rstrip(".") or "nothing is known of it", f"devices.{life.device.id}"
        less = f"Ask for less or for other nodes: {device}.cpu, .memory, .node_name. " if "Unschedulable" in why else ""
        raise TransportError(
            f"{life.where}: not ready within {limit_s:g} s: {said}. {less}More time: {device}.ready_timeout_s"
        )

    async def _give_back(self, pod: Pod) -> None:
        """A pod that never started ends itself never either."""
        if self._life.creates and is_ours(pod) and pod["metadata"]["uid"] != self._life.met:
            with suppress(SidewinderError, Refused):
                await self._life.delete(pod["metadata"]["uid"])
