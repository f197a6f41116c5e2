"""An arrival: what a user's rule left on its device, on its way to the names that the rule declared for it.

Everything is written beside its target first, verified by the digest that the device took, and synced; only when all
of it is here does any of it get its name. What the device says is not trusted with a path: it may fill the declared
names and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sidewinder.errors import TransportError
from sidewinder.model import Json

from .atomic import REAL, FileOps, make_folder

Entry = Mapping[str, Json]


@dataclass(slots=True)
class _File:
    """One file and how much of it is here."""

    path: str  # as declared, or below a declared folder
    temp: str
    size: int
    sha256: str
    executable: bool
    have: int = 0
    digest: Any = field(default_factory=hashlib.sha256)


class Arrival:
    """Of one run, for a fetch (``transports.fetching``). Methods block on the disk and raise its ``OSError``;
    ``TransportError``: what came is not what the device has."""

    def __init__(
        self, workdir: str, outputs: Iterable[str], logs: Iterable[str], *, where: str = "", ops: FileOps = REAL
    ) -> None:
        """``outputs`` and ``logs`` are relative to ``workdir``; ``where`` names run and device in messages."""
        self.workdir, self.where = workdir, where
        self.outputs, self.logs = tuple(outputs), tuple(logs)
        self._ops = ops
        self._entries: list[Entry] | None = None
        self._files: dict[int, _File] = {}
        self._links: list[tuple[str, str]] = []  # path of the temp, text
        self._tops: dict[str, str] = {}  # declared name -> temp of what came for it

    @property
    def arrived(self) -> frozenset[str]:
        """The declared names for which something came, once all is here."""
        return frozenset(self._tops)

    def expect(self, entries: Sequence[Entry]) -> None:
        """All that will come. The same list again keeps what is here."""
        told: list[Entry] = [dict(entry) for entry in entries]
        if told == self._entries:
            return
        self.discard()
        sent = {entry["path"] for entry in told}
        outputs = [name for name in self.outputs if name in sent]  # of a command that failed only logs come
        checked = [(entry, self._top(str(entry["path"]), outputs)) for entry in told]
        for entry, top in checked:
            if entry["path"] == top:
                self._tops[top] = self._temp(top)
                _remove(self._tops[top])  # of a controller that was killed
                make_folder(os.path.dirname(self._tops[top]), self._ops)
        for entry, top in checked:
            temp = self._tops[top] + str(entry["path"])[len(top) :]
            if entry["kind"] == "folder":
                os.mkdir(temp)
            elif entry["kind"] == "link":
                self._links.append((temp, self._checked_link(entry, top)))
            else:
                one = _File(entry["path"], temp, entry["bytes"], entry["sha256"], bool(entry.get("executable")))
                self._files[int(entry["number"])] = one
                self._ops.close(self._ops.create(temp))
                if not one.size:
                    self._finish(one)
        self._entries = told

    def have(self, number: int) -> int:
        return self._files[number].have

    def take(self, number: int, data: bytes) -> None:
        """The next bytes of a file; the last ones bring the verdict."""
        one = self._files[number]
        fd = os.open(one.temp, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.lseek(fd, one.have, os.SEEK_SET)
            written = 0
            while written < len(data):
                written += self._ops.write(fd, data[written:])
            one.have += len(data)
            one.digest.update(data)
            if one.have >= one.size and one.path in self._tops:
                self._ops.fsync(fd)  # what lies in a folder is synced with it
        finally:
            self._ops.close(fd)
        if one.have >= one.size:
            self._finish(one)

    def place(self, *, outputs: bool) -> None:
        """Give the logs their names, and with ``outputs`` the outputs, all of them or (after an error) some."""
        if self._entries is None:
            return
        for temp, text in self._links:
            os.symlink(text, temp)
        self._links = []
        wanted = [name for name in (*(self.outputs if outputs else ()), *self.logs) if name in self._tops]
        for name in wanted:
            if os.path.isdir(self._tops[name]):
                self._sync_folder(self._tops[name])
        for name in wanted:
            target = os.path.join(self.workdir, name)
            temp = self._tops.pop(name)
            try:
                if os.path.isdir(target) and not os.path.islink(target):
                    shutil.rmtree(target)
                os.utime(temp)  # by this machine's clock, as Snakemake compares it
                self._ops.rename(temp, target)
            except OSError:
                self._tops[name] = temp
                raise
        for folder in {os.path.dirname(os.path.join(self.workdir, name)) for name in wanted}:
            self._ops.fsync_dir(folder)

    def discard(self) -> None:
        """Remove what came and got no name."""
        for temp in self._tops.values():
            with suppress(OSError):
                _remove(temp)
        self._entries = None
        self._files, self._links, self._tops = {}, [], {}

    def _finish(self, one: _File) -> None:
        found = one.digest.hexdigest()
        if one.have != one.size or found != one.sha256:
            came, one.have, one.digest = one.have, 0, hashlib.sha256()
            os.truncate(one.temp, 0)
            raise TransportError(
                f"{self.where}: {one.path} arrived damaged: {came} bytes with SHA-256 {found}, the device has "
                f"{one.size} with {one.sha256}"
            )
        if one.executable:
            mode = os.stat(one.temp).st_mode
            os.chmod(one.temp, mode | (mode & 0o444) >> 2)  # for whoever may read it, as umask decided

    def _temp(self, name: str) -> str:
        """Beside the target, and the same each time: what a killed controller left there is overwritten."""
        folder, base = os.path.split(os.path.join(self.workdir, name))
        short = hashlib.sha256(os.fsencode(base)).hexdigest()[:12]
        return os.path.join(folder, f".{base[:60]}.{short}.partial")

    def _top(self, path: str, outputs: Sequence[str]) -> str:
        """The declared name that ``path`` belongs to."""
        if os.path.normpath(path) == path and ".." not in path.split("/"):
            for name in outputs:
                if path == name or path.startswith(f"{name}/"):
                    return name
            if path in self.logs:
                return path
        raise TransportError(f"{self.where}: the device sent {path!r}, which the rule does not declare")

    def _checked_link(self, entry: Entry, top: str) -> str:
        path, text = str(entry["path"]), str(entry["link"])
        if os.path.isabs(text) or not f"{os.path.normpath(os.path.join(os.path.dirname(path), text))}/".startswith(
            f"{top}/"
        ):
            raise TransportError(f"{self.where}: the device sent {path!r} as a link to {text!r}, outside of {top}")
        return text

    def _sync_folder(self, folder: str) -> None:
        if self._ops.sync_tree(folder):
            return
        for below, _, names in os.walk(folder, topdown=False):
            for name in names:
                path = os.path.join(below, name)
                if not os.path.islink(path):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        self._ops.fsync(fd)
                    finally:
                        self._ops.close(fd)
            self._ops.fsync_dir(below)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)
