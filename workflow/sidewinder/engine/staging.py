"""A parcel: a file of this machine that a point needs on its device, where the device has no such file of its own.

Which parcels a point has is known from the plan. Their digests are read when the point is prepared, and their path on
the device follows from them, so that its task can be built and refused before the first byte is sent.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sidewinder.errors import ConfigError
from sidewinder.model import Device, FileCheck, Json, Lab, Model, Point, Task

from .devices import DeviceLink, path_on

TELL_EVERY_S = 1.0

Tell = Callable[[str, int, int], None]  # the file as it was written, bytes on the device, bytes in all


class Wanted(NamedTuple):
    """A parcel as the plan knows it: ``file`` as it was written; ``key`` is where."""

    file: str
    key: str
    declared_sha256: str | None = None


class Parcel(NamedTuple):
    """``path``: where the device has it, or will have it."""

    file: str
    source: Path
    sha256: str
    path: str

    def record(self) -> dict[str, Json]:
        """What the record says of it, beside the path that was written."""
        return {"file": self.file, "path": self.path, "sha256": self.sha256}


def staged_model(model: Model | None, device: Device) -> str | None:
    """The model's file on this machine that is brought to ``device``; None: it has a path of its own there, or it is
    this machine."""
    if model is None or device.kind == "local" or model.paths.get(device.id) or model.path:
        return None
    return model.stage


def wanted_by(lab: Lab, point: Point, device: Device) -> tuple[Wanted, ...]:
    """All that is brought to ``device`` for this point."""
    if device.kind == "local":
        return ()
    found = [Wanted(file, "stage") for file in _arguments(point)]
    model = lab.models.get(point.model) if point.model else None
    file = staged_model(model, device)
    if model is not None and file is not None:
        found = [Wanted(file, f"models.{model.id}.stage", model.sha256), *(one for one in found if one.file != file)]
    return tuple(found)


def _arguments(point: Point) -> list[str]:
    """Of the block's files those that this point's own arguments name: a parameter may choose among them."""
    named = {*point.command, *(value for value in point.parameters.values() if isinstance(value, str))}
    return [file for file in point.stage if file in named]


def source_of(file: str) -> Path:
    """A relative path counts from where the person stands, as for a model on this machine."""
    return Path(os.path.abspath(os.path.expanduser(file)))


async def pack(link: DeviceLink, wanted: Wanted) -> Parcel:
    """Learn the digest. Raises ``ConfigError`` (the file is missing here, or is not the declared one),
    ``TransportError``, ``DeviceFault``."""
    from sidewinder.transports.staging import digest_of

    source = source_of(wanted.file)
    sha256 = await digest_of(source, key=wanted.key)
    if wanted.declared_sha256 is not None and wanted.declared_sha256.lower() != sha256:
        raise ConfigError(
            f"{source} has the SHA-256 {sha256}, declared is {wanted.declared_sha256}: nothing was brought to "
            f"{link.device.id}",
            key=wanted.key,
            value=wanted.file,
        )
    async with link.client() as client:
        return Parcel(wanted.file, source, sha256, client.store_path(sha256))


def with_files(task: Task, point: Point, device: Device, parcels: Sequence[Parcel]) -> Task:
    """The task with the paths that its files have on the device, and with a look at what was brought before the run:
    what lies in a device's store may have been damaged since."""
    paths = {parcel.file: parcel.path for parcel in parcels} or {file: path_on(device, file) for file in point.stage}
    argv = tuple(paths.get(word, word) if word in point.stage else word for word in task.argv)
    if argv != task.argv:
        task = replace(task, argv=argv)
    known = {check.path for check in task.checks}
    checks = tuple(FileCheck(one.path, one.sha256, one.file) for one in parcels if one.path not in known)
    return replace(task, checks=(*task.checks, *checks)) if checks else task


async def bring(link: DeviceLink, parcel: Parcel, tell: Tell) -> None:
    """Make it be on the device. ``tell`` is called now and then while bytes are sent, and not where none are.

    Raises as ``pack`` does."""
    total = parcel.source.stat().st_size if parcel.source.exists() else 0  # a missing one is told by the transfer
    now_s = asyncio.get_running_loop().time
    told: tuple[int, float] | None = None

    def progress(have: int) -> None:
        nonlocal told
        if have >= total and (told is None or told[0] == have):
            return  # all of it lay there already, or was told of
        if told is None or have >= total or now_s() - told[1] >= TELL_EVERY_S:
            told = have, now_s()
            tell(parcel.file, have, total)

    async with link.client() as client:
        await client.stage(parcel.source, parcel.sha256, progress=progress)
