"""The known hosts of a device: which host keys are trusted, from the project's own file and the user's.

Reading is asyncssh's; only ``enrol`` writes, and only the project's own file. There is no way to trust every key.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncssh import SSHKey
    from asyncssh.known_hosts import SSHKnownHosts

SSH_PORT = 22


def own_file(declared: str | None) -> str:
    """The project's own file: as declared (``devices.NAME.known_hosts``), else one for all labs of this user."""
    if declared:
        return os.path.expanduser(declared)
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(config, "sidewinder", "known_hosts")


def fingerprint(key: SSHKey) -> str:
    return key.get_fingerprint()


def described(key: SSHKey) -> str:
    """As OpenSSH shows a key: ``ssh-ed25519 SHA256:...``."""
    return f"{key.get_algorithm()} {fingerprint(key)}"


def pattern_of(name: str, port: int) -> str:
    return name if port == SSH_PORT else f"[{name}]:{port}"


class KnownHosts:
    """``own`` is the file that enrolment writes; ``others`` are read as well (``~/.ssh/known_hosts``, ...)."""

    def __init__(self, own: str, others: Sequence[str] = ()) -> None:
        self.own = own
        self.files = tuple(dict.fromkeys((own, *others)))

    def load(self) -> SSHKnownHosts:
        """What asyncssh verifies against. A missing file trusts nobody, an unreadable line neither."""
        from asyncssh import import_known_hosts

        known = import_known_hosts("")
        for path in self.files:
            for line in _lines(path):
                with contextlib.suppress(ValueError):
                    known.load(line)
        return known

    def knows(self, name: str, address: str, port: int) -> bool:
        """Whether anything is said about this server, by name or address, key or authority."""
        found: Sequence[Any] = self.load().match(name, address, port if port != SSH_PORT else None)
        return any(found)

    def keys_of(self, name: str, port: int) -> tuple[list[SSHKey], list[SSHKey]]:
        """(trusted keys, revoked keys) of exactly this address: a key of the same host's other port is not its key."""
        found: Sequence[Any] = self.load().match(pattern_of(name, port), "", None)
        return list(found[0]), list(found[2])

    def enrol(self, name: str, port: int, key: SSHKey) -> None:
        """Trust ``key`` for this address, in place of what our own file had for it. On disk when this returns."""
        pattern = pattern_of(name, port)
        public = key.export_public_key("openssh").decode().split()[:2]
        kept = [line for line in _lines(self.own) if not _is_key_of(line, pattern)]
        text = "".join(f"{line}\n" for line in [*kept, f"{pattern} {' '.join(public)}"])
        folder = os.path.dirname(self.own) or "."
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, temporary = tempfile.mkstemp(dir=folder, prefix=".known_hosts-")
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.own)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _lines(path: str) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in file)
    except (FileNotFoundError, NotADirectoryError):
        return


def _is_key_of(line: str, pattern: str) -> bool:
    """A line that we wrote for this address: one plain name, no marker."""
    return line.split(None, 1)[:1] == [pattern]
