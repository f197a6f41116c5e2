"""A frame: one JSON object and one blob of raw bytes, both with their length said before.

To the device ``<json bytes> <blob bytes>\\n`` + JSON + blob; from the device the same behind ``@@<nonce> `` and before
a newline, so that whatever a login shell prints cannot be taken for a frame.
"""

import json

from .sysfiles import write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def encode_frame(message: "dict[str, Any]", blob: bytes = b"") -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"%d %d\n%s%s" % (len(body), len(blob), body, blob)


def send_frame(fd: int, nonce: str, message: "dict[str, Any]", blob: bytes = b"") -> None:
    write_all(fd, b"@@" + nonce.encode() + b" " + encode_frame(message, blob) + b"\n")


class FrameBuffer:
    """Bytes that arrived and are not a whole frame yet."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.need = 0  # do not look again before so many bytes are there: a 100 MB stdin comes in 64 KiB pieces

    def feed(self, data: bytes) -> "list[tuple[dict[str, Any], bytes]]":
        self.data += data
        frames = []
        while len(self.data) >= self.need:
            end = self.data.find(b"\n", 0, 64)
            if end < 0:
                if len(self.data) >= 64:
                    raise ValueError("not a frame header: " + repr(bytes(self.data[:64])))
                break
            json_bytes, blob_bytes = (int(part) for part in self.data[:end].split())
            self.need = end + 1 + json_bytes + blob_bytes
            if len(self.data) < self.need:
                break
            body = self.data[end + 1 : end + 1 + json_bytes]
            frames.append((json.loads(body.decode()), bytes(self.data[end + 1 + json_bytes : self.need])))
            del self.data[: self.need]
            self.need = 0
        return frames
