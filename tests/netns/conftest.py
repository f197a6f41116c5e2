"""What the tests on lab hosts share: one lab a file, mended after each test, and sweeps that end with their test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from netns.controller import POLICY, Sweep, quicken
from netns.lab_hosts import LabHosts
from sidewinder.model import Device, Policy

MakeSweep = Callable[..., Sweep]


@pytest.fixture(scope="module")
def lab_of_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabHosts]:
    with LabHosts(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture
def lab(lab_of_file: LabHosts) -> Iterator[LabHosts]:
    """Three hosts that are well and remember nothing."""
    for host in lab_of_file:
        shutil.rmtree(host.witness.folder, ignore_errors=True)
    yield lab_of_file
    for host in lab_of_file:
        if not host.is_on or host.processes() or not host.sshd():
            host.power_off()
            host.power_on()
        host.heal()
    lab_of_file.trust()


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the person who runs the tests, and waits of a test."""
    (tmp_path / "me").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    quicken(setter=monkeypatch.setattr)


@pytest.fixture
def sweep(lab: LabHosts, tmp_path: Path, quick: None) -> Iterator[MakeSweep]:
    """Start one in the background; again in the same folder for the same command again."""
    made: list[Sweep] = []

    def make(points: Sequence[dict[str, Any]], devices: Sequence[Device], policy: Policy = POLICY) -> Sweep:
        made.append(Sweep.of(tmp_path / "runs", points, devices, policy))
        return made[-1]

    yield make
    for one in made:
        one.end()
