"""A capture: the first and the last bytes of a stream, and the count of all."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Capture:
    def __init__(self, cap_bytes: int) -> None:
        self.half = max(1, cap_bytes // 2)
        self.head = bytearray()
        self._tail = bytearray()
        self.total_bytes = 0

    def add(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self.half - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        if data:
            self._tail += data
            if len(self._tail) > 2 * self.half:  # trimmed seldom, so that a chatty run costs O(1) per byte
                del self._tail[: len(self._tail) - self.half]

    @property
    def tail(self) -> bytes:
        return bytes(self._tail[-self.half :])

    def sizes(self) -> "dict[str, Any]":
        return {"head": len(self.head), "tail": len(self.tail), "total": self.total_bytes}
