"""A frame as the controller sees it: a JSON object and a blob behind the front's nonce, among whatever else comes."""

from __future__ import annotations

import json
from typing import Any

Frame = tuple[dict[str, Any], bytes]

NOISE_CAP_BYTES = 65_536
FRAME_CAP_BYTES = 1 << 30


class BadFrame(Exception):
    """The stream cannot be followed any more."""


class FrameStream:
    """Bytes from a front, turned into frames. What lies before and between frames is noise, kept for messages."""

    def __init__(self, nonce: str) -> None:
        self._marker = b"@@" + nonce.encode() + b" "
        self._data = bytearray()
        self._need = 0  # bytes to wait for before looking again
        self.noise = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._data += data
        frames: list[Frame] = []
        while len(self._data) >= self._need:
            at = self._data.find(self._marker)
            if at < 0:
                # The marker itself may be cut in two.
                self._drop_noise(max(0, len(self._data) - len(self._marker) + 1))
                break
            self._drop_noise(at)
            header_start = len(self._marker)
            header_end = self._data.find(b"\n", header_start, header_start + 48)
            if header_end < 0:
                if len(self._data) >= header_start + 48:
                    raise BadFrame(f"no frame header after the marker: {bytes(self._data[:80])!r}")
                break
            try:
                json_bytes, blob_bytes = (int(word) for word in self._data[header_start:header_end].split())
            except ValueError:
                raise BadFrame(f"not a frame header: {bytes(self._data[: header_end + 1])!r}") from None
            if json_bytes < 0 or blob_bytes < 0 or json_bytes + blob_bytes > FRAME_CAP_BYTES:
                raise BadFrame(f"a frame of {json_bytes} + {blob_bytes} bytes")
            body = header_end + 1
            self._need = body + json_bytes + blob_bytes + 1
            if len(self._data) < self._need:
                break
            try:
                message = json.loads(self._data[body : body + json_bytes])
            except ValueError as error:
                raise BadFrame(f"a frame that is not JSON: {error}") from None
            frames.append((message, bytes(self._data[body + json_bytes : self._need - 1])))
            del self._data[: self._need]
            self._need = 0
        return frames

    def end(self) -> None:
        """Nothing comes any more: what waited for the rest of a marker or a frame was noise too."""
        self._drop_noise(len(self._data))

    def _drop_noise(self, size: int) -> None:
        if size > 0:
            self.noise += self._data[: min(size, max(0, NOISE_CAP_BYTES - len(self.noise)))]
            del self._data[:size]


def encode(message: dict[str, Any], blob: bytes = b"") -> bytes:
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%d %d\n%b%b" % (len(body), len(blob), body, blob)
