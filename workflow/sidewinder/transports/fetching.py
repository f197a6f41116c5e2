"""A fetch: the files that a finished run left on its device for us are brought home, piece by piece.

Pieces are as small as the link needs: a heartbeat of another run waits behind them. What a receiver has is not asked
for again, so a fetch over a link that broke goes on where the last one stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from sidewinder.errors import TransportError
from sidewinder.model import Json

from .staging import CALL_S, FIRST_PIECE_BYTES, LATE_S, LEAST_PIECE_BYTES, PIECE_BYTES, QUICK_S, SLOW_LINK_BYTES_S

if TYPE_CHECKING:
    from .client import AgentClient

MOST_FILES: Final = 256  # small files that one piece may carry

Entry = Mapping[str, Json]


class Receiver(Protocol):
    """Where the bytes go. Each method may take its time; what it raises ends the fetch."""

    async def expect(self, entries: Sequence[Entry]) -> None:
        """All that will come (docs/agent.md, "The result"): the same list again when a fetch goes on."""

    def have(self, number: int) -> int:
        """How many bytes of file ``number`` are here."""

    async def take(self, number: int, data: bytes) -> None:
        """The next bytes of file ``number``; with the last ones it is verified."""


async def fetch_files(client: AgentClient, attempt: Mapping[str, Any], entries: Sequence[Entry], to: Receiver) -> None:
    """Bring all of ``entries`` home. Raises ``TransportError`` and what ``to`` raises."""
    await to.expect(entries)
    now_s = asyncio.get_running_loop().time
    sizes = {int(entry["number"]): int(entry["bytes"]) for entry in entries if entry["kind"] == "file"}
    piece = FIRST_PIECE_BYTES
    while wanted := _next(sizes, to, piece):
        since_s = now_s()
        asked = sum(size for _, _, size in wanted)
        message, blob = await client.call("file", pieces=wanted, wait_s=CALL_S + asked / SLOW_LINK_BYTES_S, **attempt)
        took_s = now_s() - since_s
        at = 0
        for (number, _, size), came in zip(wanted, message["sizes"], strict=True):
            if came != size:
                raise TransportError(
                    f"device {client.device.id!r}: file {number} of the result is shorter there than it was"
                )
            await to.take(number, blob[at : at + size])
            at += size
        if took_s < QUICK_S:
            piece = min(PIECE_BYTES, 2 * piece)
        elif took_s > LATE_S:
            piece = max(LEAST_PIECE_BYTES, piece // 2)


def _next(sizes: dict[int, int], to: Receiver, room: int) -> list[tuple[int, int, int]]:
    """(file, offset, bytes) of what fits into one piece: a part of a large file, or many small ones. ``sizes`` loses
    the files that are here whole."""
    wanted: list[tuple[int, int, int]] = []
    for number in list(sizes):
        have = to.have(number)
        if have >= sizes[number]:
            del sizes[number]
            continue
        size = min(room, sizes[number] - have)
        wanted.append((number, have, size))
        room -= size
        if room <= 0 or len(wanted) == MOST_FILES:
            break
    return wanted
