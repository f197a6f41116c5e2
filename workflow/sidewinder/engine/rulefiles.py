"""The files of a rule: what a user's rule reads and writes, by the relative paths that its command names.

For another machine they are gathered here and staged there; a folder that is an input is every file in it.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sidewinder.errors import ConfigError
from sidewinder.model import StagedInput

from .devices import DeviceLink
from .staging import Parcel, Tell, bring


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """Paths relative to ``workdir``, in their shortest spelling; on a device they are relative to a fresh folder."""

    workdir: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    latency_wait_s: float = 0.0  # how late an output may appear on this machine's file system

    def parents(self) -> tuple[str, ...]:
        """The folders that a command may expect to be there, as Snakemake makes them."""
        found = (os.path.dirname(path) for path in (*self.outputs, *self.logs))
        return tuple(sorted({folder for folder in found if folder}))


@dataclass(frozen=True, slots=True)
class Packed:
    """What one run of the rule needs on its device, and where each file of it comes from."""

    inputs: tuple[StagedInput, ...] = ()
    folders: tuple[str, ...] = ()  # made before the command starts
    parcels: tuple[Parcel, ...] = ()


async def pack(link: DeviceLink, files: RuleFiles) -> Packed:
    """Learn the digests of the inputs. Raises ``ConfigError`` (one is missing here), ``TransportError``,
    ``DeviceFault``."""
    from sidewinder.transports.staging import digest_of

    folders = set(files.parents())
    try:
        gathered = await asyncio.to_thread(lambda: list(_gather(files, folders)))
    except OSError as error:
        raise ConfigError(f"an input cannot be read: {error.strerror or error}", value=error.filename) from error
    inputs, parcels = [], []
    async with link.client() as client:
        for path, source, executable in gathered:
            sha256 = await digest_of(source)
            where = client.store_path(sha256)
            inputs.append(StagedInput(path, where, sha256, executable))
            parcels.append(Parcel(path, Path(source), sha256, where))
    return Packed(tuple(inputs), tuple(sorted(folders)), tuple(parcels))


async def bring_all(link: DeviceLink, packed: Packed, tell: Tell) -> None:
    """Make the device have the inputs. Raises as ``staging.bring``."""
    async with link.client() as client:
        there = await client.staged(list({parcel.sha256 for parcel in packed.parcels}))
    for one, parcel in zip(packed.inputs, packed.parcels, strict=True):
        if parcel.sha256 not in there or one.executable:  # it may have come under a name that was no program
            await bring(link, parcel, tell)
            there[parcel.sha256] = parcel.path


def _gather(files: RuleFiles, folders: set[str]) -> Iterator[tuple[str, str, bool]]:
    """(path below the fresh folder, path here, executable) of each file; folders, maybe empty, go to ``folders``."""
    seen: set[str] = set()
    for name in files.inputs:
        for path in _below(files.workdir, name, folders):
            if path in seen:
                continue
            seen.add(path)
            source = os.path.join(files.workdir, path)
            mode = os.stat(source).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError("is no file that could be brought to a device", value=path)
            yield path, source, bool(mode & 0o100)


def _below(workdir: str, name: str, folders: set[str]) -> Iterable[str]:
    real = os.path.join(workdir, name)
    if not os.path.exists(real):
        raise ConfigError("an input of the rule is not there (any more)", value=name)
    if not os.path.isdir(real):
        return [name]
    found: list[str] = []
    above: set[str] = set()

    def walk(folder: str) -> None:
        here = os.path.realpath(os.path.join(workdir, folder))
        if here in above:
            raise ConfigError("leads back to a folder above it", value=folder)
        above.add(here)
        folders.add(folder)
        for entry in sorted(os.listdir(os.path.join(workdir, folder))):
            if entry == ".snakemake_timestamp":  # how Snakemake dates an output folder; it is made anew by each touch
                continue
            path = os.path.join(folder, entry)
            if os.path.isdir(os.path.join(workdir, path)):
                walk(path)
            else:
                found.append(path)
        above.discard(here)

    walk(name)
    return found
