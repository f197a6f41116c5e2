"""B12 over SSH: one device is three hours ahead, another a millisecond behind: nothing is deleted, nothing measured
again, and the offset of each is in its records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from e2e.helpers_badluck import records
from e2e.helpers_clock import WrongClock
from e2e.helpers_ssh import Sshd, needs_sshd
from plugin.helpers_plugin import LabFolder, Snakemake, open_points

pytestmark = needs_sshd
OFFSETS_S = {"ahead": 3 * 3600.0, "behind": -0.001}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Sshd]]:
    made = {name: Sshd(tmp_path / name) for name in OFFSETS_S}
    try:
        yield {name: server.start() for name, server in made.items()}
    finally:
        for server in made.values():
            server.stop()


@pytest.fixture(scope="module")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()


def test_nothing_is_deleted_and_nothing_repeated(
    snakemake: Snakemake, servers: dict[str, Sshd], tmp_path: Path
) -> None:
    lab = LabFolder(snakemake, tmp_path / "lab")
    written = lab.lab(devices=list(servers))
    written["devices"] = {
        name: {"kind": "ssh", **server.settings(), "python": str(WrongClock(server.folder, OFFSETS_S[name]).python)}
        for name, server in servers.items()
    }
    lab.configure(written)
    lab.fail("ahead-2")
    assert lab.run(env={"HOME": str(tmp_path)}).rc == 1
    root = lab.folder / "runs/demo"
    kept = {path: path.read_bytes() for path in root.glob("records/*/*.json") if b'"ok"' in path.read_bytes()}
    assert len(kept) == 3
    for record in records(root).values():
        device, clock = record["device"]["device_id"], record["clock"]
        assert abs(clock["offset_s"] - OFFSETS_S[device]) <= clock["bound_s"] + 0.0005, "the offset is in the record"
        told = (datetime.fromisoformat(record["timestamp_utc"]) - datetime.now().astimezone()).total_seconds()
        assert (told > 3600) == (device == "ahead"), "the device's own time, as its clock says"
        assert 0 < record["duration_s"] < 60
    assert open_points(lab.run("-n", env={"HOME": str(tmp_path)}).text) == ["ahead-2"]

    lab.fail()
    again = lab.run(env={"HOME": str(tmp_path)})
    assert again.rc == 0, again.text
    assert {path: path.read_bytes() for path in kept} == kept
    assert sorted(lab.starts) == ["ahead-1", "ahead-2", "ahead-2", "behind-1", "behind-2"]
    last = lab.run(env={"HOME": str(tmp_path)})
    assert "Nothing to be done" in last.text
    assert len(lab.starts) == 5
    assert not re.search(r"clock skew|in the future|Deleting|Removing", last.text, re.I)
