"""A digest: the SHA-256 of a file, remembered under (device, inode, size, mtime, ctime) so that it is read once."""

import os
import time

from .sysfiles import read_json, write_all, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_CHUNK_BYTES = 1 << 20
_REMEMBERED = 256
_SETTLED_S = 2.0  # a file changed just now can change again within one tick of its file system's clock


def read_digest(file: "Any", between: "Callable[[], object] | None" = None, out: int = -1) -> str:
    """Hex SHA-256 of an open file, read to its end; ``out`` is a descriptor that gets a copy. ``between`` is called
    after each MiB."""
    import hashlib  # brings OpenSSL along (3 MB): only where a digest is really asked for

    digest = hashlib.sha256()
    while True:
        chunk = file.read(_CHUNK_BYTES)
        if not chunk:
            return digest.hexdigest()
        digest.update(chunk)
        if out >= 0:
            write_all(out, chunk)
        if between is not None:
            between()


class DigestCache:
    def __init__(self, state_dir: str) -> None:
        self.path = os.path.join(state_dir, "digests.json")

    def sha256(self, path: str, between: "Callable[[], object] | None" = None) -> str:
        """Hex SHA-256; ``between`` is called after each MiB, so that a 40 GB model cannot make a runner deaf."""
        with open(path, "rb", buffering=0) as file:
            name = self._name(os.fstat(file.fileno()))
            known = self._known()
            if name in known:
                return str(known[name])
            found = read_digest(file, between)
            after = os.fstat(file.fileno())
        if self._name(after) == name and time.time() - max(after.st_mtime, after.st_ctime) > _SETTLED_S:
            self._remember(name, found)
        return found

    def vouch(self, status: "os.stat_result", digest: str) -> None:
        """Somebody has just read this file whole: it need not be read again."""
        self._remember(self._name(status), digest)

    def keep(self, before: "os.stat_result", after: "os.stat_result") -> None:
        """Only its dates or its mode were changed."""
        digest = self._known().get(self._name(before))
        if digest is not None:
            self._remember(self._name(after), str(digest))

    @staticmethod
    def _name(status: "os.stat_result") -> str:
        return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"

    def _known(self) -> "dict[str, str]":
        known = read_json(self.path)
        return known if isinstance(known, dict) else {}

    def _remember(self, name: str, digest: str) -> None:
        known = self._known()
        known[name] = digest
        while len(known) > _REMEMBERED:
            del known[next(iter(known))]
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            write_json(self.path, known)
        except OSError:
            pass  # only a cache: the next run reads the file again
