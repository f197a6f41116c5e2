"""A record: the one JSON file that says how a planned point ended. Here it is read, judged and published.

A record is only ever believed as a whole: torn, empty, of another schema or of another run id is *broken*, which is
never done. A failure never replaces an ok record; a new ok keeps the old one, and a hole the failed result before it,
under ``superseded/``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sidewinder.errors import BrokenRecord
from sidewinder.model import FailureClass

from . import atomic
from .draft import SCHEMA_VERSION, build, hole, tidy
from .layout import RunFolder

if TYPE_CHECKING:
    from .record import Record

__all__ = [
    "SCHEMA_VERSION",
    "Published",
    "build",
    "digest",
    "encode",
    "find",
    "hole",
    "publish",
    "publish_many",
    "read",
    "status_in",
    "status_of",
    "status_said",
]

Status = Literal["ok", "failed", "hole", "broken", "missing"]
Outcome = Literal["published", "kept_ok"]


# a record is a tree by the time it comes here: looking for circles is a quarter of the time
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)


def read(path: str) -> Record:
    """The record under ``path``. Raises ``FileNotFoundError``, or ``BrokenRecord`` saying what is wrong with it."""
    from pydantic import ValidationError

    from .record import Record  # pydantic costs 0.15 s: not for those who only look at a status

    data = _bytes_of(path)
    try:
        return Record.model_validate(json.loads(data))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise BrokenRecord(f"{path} is not a record of schema {SCHEMA_VERSION}: {where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        what = "empty" if not data.strip() else f"torn or not JSON ({error})"
        raise BrokenRecord(f"{path} is {what}") from error


def status_of(path: str, run_id: str) -> Status:
    """What the file under ``path`` says about ``run_id``: without pydantic, because a plan has many thousands."""
    try:
        data = _bytes_of(path)
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:  # a folder under that name, no permission, an I/O error: there, and not to be believed
        return "broken"
    return status_in(data, run_id)


def status_in(data: bytes, run_id: str) -> Status:
    """The same for bytes that were read already."""
    try:
        return status_said(json.loads(data), run_id)
    except (ValueError, RecursionError):
        return "broken"


def status_said(record: Any, run_id: str) -> Status:
    """The same for a record that was parsed, or is about to be written."""
    if not isinstance(record, dict):
        return "broken"
    version = record.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool) or record.get("run_id") != run_id:
        return "broken"
    status = record.get("status")
    if status == "ok":
        return "ok"
    if status != "failed":
        return "broken"
    failure = record.get("failure")
    if isinstance(failure, dict) and failure.get("class") == FailureClass.NOT_ATTEMPTED.value:
        return "hole"
    return "failed"


def encode(record: Mapping[str, Any]) -> bytes:
    """The bytes of a record. Half a character of somebody's output (a lone surrogate) becomes ``?``, not an error."""
    try:
        text = _ENCODER.encode(record)
    except (ValueError, TypeError):  # a NaN, or no JSON at all
        text = _ENCODER.encode(tidy(record))
    return text.encode("utf-8", "replace") + b"\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def publish(
    folder: str, device: str, run_id: str, record: Mapping[str, Any], *, ops: atomic.FileOps = atomic.REAL
) -> Outcome:
    """Put the record of one point on disk. ``kept_ok``: a failure met an ok record, which stands.

    Raises ``PublishError``; the earlier record then stands, too.
    """
    path = RunFolder(folder).record(device, run_id)
    data = encode(record)
    if _keeps_ok(folder, device, run_id, path, data, record, ops):
        return "kept_ok"
    atomic.publish(path, data, what="record", ops=ops)
    return "published"


class Published(NamedTuple):
    """One record of a batch as it now lies on disk: what a shard's manifest keeps of it."""

    run_id: str
    outcome: Outcome
    status: Status
    digest: str
    size_bytes: int
    mtime_ns: int


def publish_many(
    folder: str,
    items: Sequence[tuple[str, str, Mapping[str, Any]]],
    *,
    ops: atomic.FileOps = atomic.REAL,
) -> list[Published]:
    """Publish many records ``(device, run_id, record)`` with one sync instead of one a record; in the given order.

    Each record by itself is safe at every kill point; the batch as a whole is not all or nothing.
    """
    layout = RunFolder(folder)
    results: list[Published | None] = []
    files: list[tuple[str, bytes]] = []
    for device, run_id, record in items:
        path = layout.record(device, run_id)
        data = encode(record)
        if _keeps_ok(folder, device, run_id, path, data, record, ops):
            results.append(entry_of(path, run_id, "kept_ok"))
        else:
            results.append(None)
            files.append((path, data))
    stats = iter(atomic.publish_batch(folder, files, what="records below", ops=ops))
    contents = iter(files)
    for index, (_, run_id, record) in enumerate(items):
        if results[index] is None:
            data, stat = next(contents)[1], next(stats)
            status = status_said(dict(record), run_id)
            results[index] = Published(run_id, "published", status, digest(data), len(data), stat.st_mtime_ns)
    return [result for result in results if result is not None]


def entry_of(path: str, run_id: str, outcome: Outcome = "published") -> Published | None:
    """What lies under ``path`` now; None where nothing does."""
    try:
        data = _bytes_of(path)
        stat = os.stat(path)
    except OSError:
        return None
    return Published(run_id, outcome, status_in(data, run_id), digest(data), len(data), stat.st_mtime_ns)


def find(path: str) -> Iterator[Record]:
    """The records in a file (``.json``: one or a list, ``.jsonl``) or a tree; what is no record is passed over."""
    from pydantic import ValidationError

    from .record import Record

    for name in _files_below(path):
        try:
            with open(name, "rb") as file:
                data = file.read()
        except OSError:
            continue
        for value in _values(data, lines=name.endswith(".jsonl")):
            if isinstance(value, dict) and "schema_version" in value:
                try:
                    yield Record.model_validate(value)
                except ValidationError:
                    continue


def _files_below(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".json", ".jsonl")) and not atomic.is_temp(name):
                yield os.path.join(folder, name)


def _values(data: bytes, *, lines: bool) -> Iterable[Any]:
    for piece in data.splitlines() if lines else [data]:
        try:
            value = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _keeps_ok(
    folder: str, device: str, run_id: str, path: str, data: bytes, record: Mapping[str, Any], ops: atomic.FileOps
) -> bool:
    """Whether an ok record stands against this failure. What was measured and is about to be replaced by another ok, or
    a failed result by a hole, is kept aside first: a night on which a device was away must not cost what is known."""
    try:
        old = _bytes_of(path)
    except OSError:
        return False
    before, now = status_in(old, run_id), status_said(dict(record), run_id)
    if before == "ok" and now != "ok":
        return True
    if old != data and (before == "ok" or (before == "failed" and now == "hole")):
        _supersede(folder, device, run_id, path, old, ops)
    return False


def _supersede(folder: str, device: str, run_id: str, path: str, old: bytes, ops: atomic.FileOps) -> None:
    """A second name for the old record, durable before the new one takes its place: no kill point is without it.

    The name comes from the content, so that the same command again after a kill makes no second copy.
    """
    when = re.sub(r"[^0-9TZ]", "", str(json.loads(old).get("timestamp_utc", "")).split("+")[0].split(".")[0])
    target = RunFolder(folder).superseded(device, run_id, f"{when or 'undated'}-{digest(old)[:8]}")
    parent = os.path.dirname(target)
    try:
        try:
            ops.link(path, target)
        except FileNotFoundError:
            atomic.make_folder(parent, ops)
            ops.link(path, target)
    except FileExistsError:
        pass  # a controller died between this and the replacement; its folder may not be synced yet
    except OSError:  # no hard links here, or the same trouble as everywhere: then publish says which
        atomic.publish(target, old, what="superseded record", ops=ops)
        return
    try:
        ops.fsync_dir(parent)
    except OSError as error:
        raise atomic.publish_error("superseded record", target, error) from error


def _bytes_of(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        data = os.read(fd, size + 1)
        if len(data) == size:
            return data
        pieces = [data]
        while piece := os.read(fd, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)
