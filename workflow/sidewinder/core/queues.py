"""A queue: the pieces of work that wait for one device, best first.

Order: attempts that may still run on the device, then priority, then position; what is tried again goes to the tail
of its priority (M-114). Taking the next one costs O(log n); a piece of work that leaves from the middle is only
marked and falls out later.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sidewinder.core.item import Item

_DOUBTFUL_RANK = -(1 << 62)  # before every priority that a person can write


class Queue:
    __slots__ = ("_heap", "_serial", "waiting")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Item]] = []
        self._serial = 0
        self.waiting = 0

    def __len__(self) -> int:
        return self.waiting

    def push(self, item: Item) -> None:
        self._serial = ticket = self._serial + 1
        item.ticket = ticket
        self.waiting += 1
        # A doubtful attempt occupies the device's slot if it still runs: nothing else could start before it anyway.
        rank = _DOUBTFUL_RANK if item.doubtful else -2 * item.priority + item.at_tail
        heappush(self._heap, (rank, item.position, ticket, item))

    def pop(self) -> Item:
        heap = self._heap
        while True:
            _, _, ticket, item = heappop(heap)
            if item.ticket == ticket:
                item.ticket = 0
                self.waiting -= 1
                return item

    def remove(self, item: Item) -> None:
        item.ticket = 0
        self.waiting -= 1

    def rank(self) -> tuple[int, int]:
        """How urgent the best piece of work is (smaller first). The queue must not be empty."""
        heap = self._heap
        while heap[0][3].ticket != heap[0][2]:
            heappop(heap)
        return heap[0][0], heap[0][1]

    def first(self) -> Item:
        """What ``pop`` would give. The queue must not be empty."""
        self.rank()
        return self._heap[0][3]

    def drain(self) -> list[Item]:
        """Take everything, in order."""
        items = [self.pop() for _ in range(self.waiting)]
        self._heap.clear()
        return items

    def items(self) -> list[Item]:
        return [entry[3] for entry in self._heap if entry[3].ticket == entry[2]]
