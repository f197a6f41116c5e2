"""B20: an empty, short or zero-filled file under a final name is no result, and a publish never makes one.

The local part; that short transfers from a device are repeated is tested with the transports.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from files.helpers_files import Killed, MortalDisk, ok, plan_of, point, status
from sidewinder.files import records
from sidewinder.files.done import Done
from sidewinder.files.summary import summarise


@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
@pytest.mark.parametrize("fill", [b"", b"\0"])
def test_a_short_record_is_open(share: float, fill: bytes, tmp_path: Path) -> None:
    whole = records.encode(ok("a", text="x" * 3000))
    kept = whole[: int(len(whole.rstrip()) * share)]
    (tmp_path / "records/pi5").mkdir(parents=True)
    (tmp_path / "records/pi5/a.json").write_bytes(kept + fill * (len(whole) - len(kept)))
    assert status(tmp_path, "a") == "broken"
    plan = plan_of(point("a"))
    assert list(Done(str(tmp_path), plan).open_points()) == ["a"]
    (told,) = summarise(str(tmp_path), plan).holes
    assert "torn, empty or foreign" in told.reason
    assert records.publish(str(tmp_path), "pi5", "a", ok("a")) == "published"
    assert status(tmp_path, "a") == "ok"


def test_the_final_name_never_holds_partial_data(tmp_path: Path) -> None:
    """A kernel that takes one byte at a time, and a death after each of them."""

    class Dribble(MortalDisk):
        def write(self, fd: int, data: bytes) -> int:
            return super().write(fd, data[:1])

    disk = Dribble()
    records.publish(str(tmp_path / "whole"), "pi5", "a", ok("a"), ops=disk)
    assert len(disk.log) > 60
    for at in range(len(disk.log)):
        folder = tmp_path / f"at{at}"
        mortal = Dribble(at)
        with pytest.raises(Killed):
            records.publish(str(folder), "pi5", "a", ok("a"), ops=mortal)
        assert status(folder, "a") in ("missing", "ok")
        mortal.lose_data()
        assert status(folder, "a") in ("missing", "ok")
