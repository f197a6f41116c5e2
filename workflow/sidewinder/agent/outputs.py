"""An output: what a run of a user's rule left in its folder and is kept beside the result until the controller has it.

A file becomes ``out.<number>`` in the record's folder, with its digest; of a folder every file does. What it is called
stays in the list that goes into the result.
"""

import os
import stat

from .digests import read_digest
from .inputs import inside
from .sysfiles import os_error_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_SEEN_NAMES = 20  # of what lies where an output is missing


class Unfit(Exception):
    """Something that cannot be sent: a socket, a circle of links."""


class Outputs:
    def __init__(self, work: str, record: str, is_ours: bool, between: "Callable[[], object]") -> None:
        """``is_ours``: ``work`` is a scratch folder that nobody writes to any more."""
        self.work, self.record, self.is_ours, self.between = work, record, is_ours, between
        self.kept = []  # type: list[dict[str, Any]]
        self.taken = 0  # numbers given; none twice, also where an output was given up half way
        self.missing = []  # type: list[str]
        self.instead = {}  # type: dict[str, list[str]]  # what lies in the folder of a missing one
        self.failed = {}  # type: dict[str, str]

    def keep(self, names: "Sequence[str]", logs: "Sequence[str]") -> None:
        """All of ``names`` or none of them, and those of ``logs`` that are there; one below an output comes with it."""
        for name in names:
            path = inside(self.work, name)
            if not os.path.exists(path):  # a link to nothing is missing too
                self.missing.append(name)
                self.instead[name] = _names_in(os.path.dirname(path))
        if not self.missing:
            for name in names:
                self._keep_named(name)
        if self.missing or self.failed:
            self.kept, names = [], []
        for name in logs:
            if os.path.exists(inside(self.work, name)) and not any(name.startswith(one + "/") for one in names):
                self._keep_named(name)

    def evidence(self) -> "dict[str, Any]":
        found = {
            "outputs_missing": self.missing,
            "outputs_instead": self.instead,
            "outputs_failed": self.failed,
        }  # type: dict[str, Any]
        return {name: value for name, value in found.items() if value}

    def _keep_named(self, name: str) -> None:
        before = len(self.kept)
        try:
            self._keep(inside(self.work, name), name, ())
        except Unfit as error:
            self.failed[name] = str(error)
        except OSError as error:
            where = os.path.relpath(error.filename, self.work) if error.filename else name
            self.failed[name] = f"{where}: {error.strerror} ({os_error_code(error)})"
        else:
            return
        del self.kept[before:]

    def _keep(self, path: str, name: str, above: "tuple[str, ...]") -> None:
        real = os.path.realpath(path) if os.path.islink(path) else path
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            here = os.path.realpath(real)
            if here in above:
                raise Unfit(f"{name} leads back to a folder above it")
            self.kept.append({"path": name, "kind": "folder"})
            for entry in sorted(os.listdir(real)):
                below = os.path.join(real, entry)
                link = _inner_link(below, above[0] if above else here)
                if link is not None:
                    self.kept.append({"path": f"{name}/{entry}", "kind": "link", "link": link})
                else:
                    self._keep(below, f"{name}/{entry}", (*above, here))
        elif stat.S_ISREG(status.st_mode):
            number, self.taken = self.taken, self.taken + 1
            target = os.path.join(self.record, f"out.{number}")
            digest = self._take(real, target)
            self.kept.append(
                {
                    "path": name,
                    "kind": "file",
                    "number": number,
                    "bytes": os.path.getsize(target),
                    "sha256": digest,
                    "executable": bool(status.st_mode & 0o100),
                }
            )
        else:
            raise Unfit(f"{name} is neither a file nor a folder")

    def _take(self, source: str, target: str) -> str:
        """Its digest. A second name, not another place: one output may be a link to the next."""
        linked = self.is_ours and _give_name(source, target)
        out = -1 if linked else os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            with open(source, "rb", buffering=0) as file:
                return read_digest(file, self.between, out)
        finally:
            if out >= 0:
                os.close(out)


def _give_name(source: str, target: str) -> bool:
    """False: this file system has no second names to give, or not for this file."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _inner_link(path: str, top: str) -> "str | None":
    """The text of a link that means the same wherever its folder is put: relative, and to something inside of it."""
    if not os.path.islink(path):
        return None
    text = os.readlink(path)
    real = os.path.realpath(path)
    return text if not os.path.isabs(text) and os.path.exists(path) and real.startswith(top + "/") else None


def _names_in(folder: str) -> "list[str]":
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return names[:_SEEN_NAMES] + ([f"and {len(names) - _SEEN_NAMES} more"] if len(names) > _SEEN_NAMES else [])
