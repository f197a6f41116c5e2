"""A record: the folder by which a device remembers one attempt of one run, from ``start`` until ``ack``.

``<state>/runs/<campaign>/<run id>.<attempt>/`` holds ``meta.json``, ``proc.json``, ``ctl`` (the runner's socket),
``work/`` (a scratch folder) and, at the end, ``result``. It appears by one rename: complete or absent.
``<state>/runs/<campaign>/max/<run id>`` keeps the highest attempt ever seen after the record is gone, so that a
``start`` that was delayed in some buffer can never run again. Environment and stdin are never written here.
"""

import os
import time

from .clocks import lease_clock_s
from .sysfiles import read_json, remove_tree, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Tuple

    Key = Tuple[str, str, int]  # campaign, run id, attempt

FORGET_AFTER_S = 30 * 86400.0
_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def check_component(name: str) -> str:
    """A name that becomes part of a path: no separator, no leading dot."""
    if not name or len(name) > 200 or name.startswith(".") or not _SAFE.issuperset(name):
        raise ValueError(f"not a safe name: {name!r}")
    return name


class RecordStore:
    def __init__(self, state_dir: str) -> None:
        self.state_dir = state_dir
        self.runs = os.path.join(state_dir, "runs")
        self._swept = set()  # type: set[str]
        self._trash = []  # type: list[str]

    def campaign(self, campaign: str) -> str:
        return os.path.join(self.runs, check_component(campaign))

    def folder(self, key: "Key") -> str:
        return os.path.join(self.campaign(key[0]), f"{check_component(key[1])}.{int(key[2])}")

    def exists(self, key: "Key") -> bool:
        return os.path.isdir(self.folder(key))

    def meta(self, key: "Key") -> "dict[str, Any] | None":
        found = read_json(os.path.join(self.folder(key), "meta.json"))
        return found if isinstance(found, dict) else None

    def proc(self, key: "Key") -> "dict[str, Any]":
        found = read_json(os.path.join(self.folder(key), "proc.json"))
        return found if isinstance(found, dict) else {}

    def result_path(self, key: "Key") -> str:
        return os.path.join(self.folder(key), "result")

    def has_result(self, key: "Key") -> bool:
        return os.path.exists(self.result_path(key))

    def highest(self, campaign: str, run_id: str) -> int:
        """The highest attempt this device has seen of a run (0: none)."""
        found = read_json(os.path.join(self.campaign(campaign), "max", check_component(run_id)))
        if isinstance(found, dict):
            found = found.get("n")
        return found if isinstance(found, int) else 0

    def raise_highest(self, key: "Key", draft: "str | None" = None) -> None:
        """``draft`` holds the attempt's ``meta.json``: a second name for it costs no second file."""
        if self.highest(key[0], key[1]) >= key[2]:
            return
        folder = os.path.join(self.campaign(key[0]), "max")
        path = os.path.join(folder, check_component(key[1]))
        if draft is not None:
            try:
                os.link(os.path.join(draft, "meta.json"), path)
                return
            except OSError:  # a second attempt, the first run of a campaign, or no hard links on this file system
                pass
        os.makedirs(folder, mode=0o700, exist_ok=True)
        write_json(path, key[2])

    def draft(self, key: "Key") -> str:
        """A folder to fill and then rename to ``folder(key)``."""
        path = os.path.join(self.campaign(key[0]), f".draft-{os.getpid()}-{key[1]}.{key[2]}")
        try:
            os.mkdir(path, 0o700)  # which says, too, that the campaign is in use: not to be forgotten by age
        except FileNotFoundError:
            os.makedirs(path, mode=0o700)
        return path

    def forget(self, key: "Key") -> None:
        """Remove a record at once, by a rename; its bytes go with ``empty_trash``."""
        path = self.folder(key)
        trash = os.path.join(self.campaign(key[0]), f".trash-{os.getpid()}-{key[1]}.{key[2]}")
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            return
        self._trash.append(trash)

    def empty_trash(self) -> None:
        while self._trash:
            remove_tree(self._trash.pop())

    def forget_campaign(self, campaign: str) -> None:
        path = self.campaign(campaign)
        trash = os.path.join(self.runs, f"trash-{os.getpid()}-{campaign}")
        try:
            os.rename(path, trash)
        except FileNotFoundError:
            return
        remove_tree(trash)

    def keys(self, campaign: str) -> "Iterator[Key]":
        """The attempts of a campaign that have a record here."""
        try:
            names = os.listdir(self.campaign(campaign))
        except FileNotFoundError:
            return
        for name in names:
            run_id, dot, attempt = name.rpartition(".")
            if dot and attempt.isdigit() and not name.startswith("."):
                yield (campaign, run_id, int(attempt))

    def collect_garbage(self, boot: str, now_s: "float | None" = None, up_s: "float | None" = None) -> "list[str]":
        """Forget campaigns that nobody has used for a month and that have nothing unfetched from this boot; remove
        what a killed front left half made. Costs one look per campaign and per result kept.

        ``up_s``: how long the machine is up. A clock that was set (a machine without one of its own hears the time of
        day late) makes everything here months old; what is of this boot is no older than the boot (B13)."""
        now_s = time.time() if now_s is None else now_s
        up_s = lease_clock_s() if up_s is None else up_s
        forgotten = []
        try:
            campaigns = os.listdir(self.runs)
        except FileNotFoundError:
            return []
        for campaign in campaigns:
            path = os.path.join(self.runs, campaign)
            try:
                self._forget_unfetched(campaign, boot, now_s, up_s)
                if now_s - os.stat(path).st_mtime < FORGET_AFTER_S:
                    continue
                unfetched = any(
                    (self.meta(key) or {}).get("boot_id") == boot
                    and (up_s < FORGET_AFTER_S or not self.has_result(key))
                    for key in self.keys(campaign)
                )
                if not unfetched:
                    remove_tree(path)
                    forgotten.append(campaign)
            except (OSError, ValueError):
                continue  # another front cleans up at the same time, or it is not ours
        return forgotten

    def _forget_unfetched(self, campaign: str, boot: str, now_s: float, up_s: float) -> None:
        """Remove what nobody will come for: a result (its files may be large) that was to be kept for a time only."""
        for key in list(self.keys(campaign)):
            meta = self.meta(key) or {}
            keep_s = meta.get("keep_result_s")
            if keep_s is None or (meta.get("boot_id") == boot and not self.has_result(key)):
                continue
            age_s = now_s - os.stat(self.folder(key)).st_mtime  # renamed into it was the result, last of all
            if (min(age_s, up_s) if meta.get("boot_id") == boot else age_s) > keep_s:
                self.forget(key)

    def sweep_drafts(self, campaign: str) -> None:
        """Remove drafts and trash whose maker is gone; once in a front's life."""
        if campaign in self._swept:
            return
        self._swept.add(campaign)
        try:
            names = os.listdir(self.campaign(campaign))
        except FileNotFoundError:
            return
        for name in names:
            if name.startswith((".draft-", ".trash-")):
                maker = name.split("-")[1]
                if not (maker.isdigit() and _alive(int(maker))):
                    remove_tree(os.path.join(self.campaign(campaign), name))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
