"""The lives: every life of one device's container in which a front of ours was, and whether each is proven over.

A pod that is gone from the API server may run on a node that nobody reaches. So a later life is used only when what ran
in the earlier ones is known to have ended (docs/design.md, promise 9); each wait ends with the lease of a run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from sidewinder.model import OUTLIVES_S, Failure

from .kubernetes_channel import PodChannel
from .kubernetes_deaths import Life, death_of
from .kubernetes_pod import TOLD_LATE_S, PodLife

LOOK_S: Final = 1.0
REMEMBERED: Final = 32


@dataclass(slots=True)
class _Lived:
    life: Life
    channel: PodChannel | None  # the last one into it; None: an earlier controller's
    since_s: float  # when we met it, or heard of it
    death: Failure | None = None
    late_until_s: float | None = None  # how long its end was waited for when its front was killed

    @property
    def was_killed(self) -> bool:
        return self.channel is not None and self.channel.was_killed

    def silent_s(self, now_s: float) -> float:
        """How long nothing was said to what ran in it."""
        spoke_s = self.since_s if self.channel is None else self.channel.ended_s
        return 0.0 if spoke_s is None else now_s - spoke_s


class Lives:
    def __init__(self) -> None:
        self._lived: dict[str, _Lived] = {}

    def ran_in(self, identity: str) -> None:
        """An earlier controller started something in this life. When it spoke last is not known: just now, then."""
        self._lived.setdefault(identity, _Lived(Life.of(identity), None, asyncio.get_running_loop().time()))

    def entered(self, identity: str, channel: PodChannel) -> None:
        """A front of ours is in this life from now on."""
        lived = self._lived.pop(identity, None)
        if lived is None:
            lived = _Lived(Life.of(identity), None, channel.began_s)
        lived.channel, lived.late_until_s = channel, None
        self._lived[identity] = lived
        while len(self._lived) > REMEMBERED:
            del self._lived[next(iter(self._lived))]

    async def death_of(self, life: PodLife, identity: str) -> Failure | None:
        """How that life ended; None: it goes on, as far as is known. Raises what ``PodLife`` raises."""
        lived = self._lived.get(identity)
        if lived is None or lived.death is not None:
            return None if lived is None else lived.death
        now_s = asyncio.get_running_loop().time
        await self._look(life, lived)
        if lived.death is None and lived.was_killed and lived.late_until_s is None:
            # a front seldom dies alone, and the status tells a moment later: else a new pod were made for nothing
            lived.late_until_s = now_s() + TOLD_LATE_S
            while lived.death is None and (left_s := lived.late_until_s - now_s()) > 0:
                await life.changed(left_s)
                await self._look(life, lived)
        return lived.death

    @staticmethod
    async def _look(life: PodLife, lived: _Lived) -> None:
        silent_s = lived.silent_s(asyncio.get_running_loop().time())
        seen = await life.last_seen(lived.life.uid)
        lived.death = death_of(
            lived.life,
            seen,
            pod=life.name,
            container=life.container,
            front_was_killed=lived.was_killed,
            silent_s=silent_s if silent_s >= OUTLIVES_S and (seen is None or seen.is_gone) else None,
        )

    async def until_over(self, life: PodLife, now: str) -> None:
        """Every life but ``now`` is proven over when this returns, at the latest when a run in it must have ended."""
        for identity, lived in list(self._lived.items()):
            while identity != now and lived.death is None and await self.death_of(life, identity) is None:
                left_s = OUTLIVES_S - lived.silent_s(asyncio.get_running_loop().time())
                if left_s <= -LOOK_S:
                    break  # its pod is there, and a later life of it runs: what this one lacks is only its end's name
                life.say(
                    "nothing proves yet that what ran in its earlier pod has ended (is that node cut off?): it is not "
                    f"used before the lease of a run is over, in {OUTLIVES_S:.0f} s at most"
                )
                await asyncio.sleep(min(LOOK_S, max(0.05, left_s)))
