"""The store of a device: a partial only grows, a name is given to verified content alone."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidewinder.agent.digests import DigestCache
from sidewinder.agent.staging import STALE_PARTIAL_S, Store, told

CONTENT = bytes(range(256)) * 40
SIZE = len(CONTENT)
NAME = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "state"))


def path_of(store: Store, name: str = NAME) -> Path:
    return Path(store.path, name)


def part_of(store: Store) -> Path:
    return path_of(store, f"{NAME}.part")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """As another front does while it writes or verifies."""
    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def test_pieces_are_appended_verified_and_named(store: Store) -> None:
    assert store.append(NAME, SIZE, 0, CONTENT[:4000]) == {"have": 4000}
    (seen,) = store.look([(NAME, SIZE)])["found"]
    assert seen == {"sha256": NAME, "whole": False, "have": 4000}
    assert store.append(NAME, SIZE, 4000, CONTENT[4000:]) == {"have": SIZE}
    assert not path_of(store).exists()
    assert store.commit(NAME, SIZE, False) == {"path": str(path_of(store))}
    assert path_of(store).read_bytes() == CONTENT
    assert os.listdir(store.path) == [NAME]
    (seen,) = store.look([(NAME, SIZE)])["found"]
    assert seen == {"sha256": NAME, "whole": True, "size_bytes": SIZE, "executable": False}


def test_only_what_lacks_is_written(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT[:4000])
    assert store.append(NAME, SIZE, 0, b"?" * 3000) == {"have": 4000}, "it lies there already"
    assert store.append(NAME, SIZE, 3000, b"?" * 1000 + CONTENT[4000:5000]) == {"have": 5000}
    assert store.append(NAME, SIZE, 6000, CONTENT[6000:]) == {"have": 5000}, "a gap is not filled with zeros"
    assert part_of(store).read_bytes() == CONTENT[:5000]


def test_a_whole_file_takes_nothing_more(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT)
    store.commit(NAME, SIZE, False)
    assert store.append(NAME, SIZE, 0, CONTENT[:100]) == {"have": SIZE}
    assert store.commit(NAME, SIZE, False) == {"path": str(path_of(store))}
    assert os.listdir(store.path) == [NAME]


@pytest.mark.parametrize(
    ("left", "answer"),
    [
        (None, {"absent": True}),
        (CONTENT[:-1], {"short": True, "have": SIZE - 1}),
        (CONTENT[:-1] + b"?", {"wrong": hashlib.sha256(CONTENT[:-1] + b"?").hexdigest()}),
        (CONTENT + b"?", {"wrong": f"a file of {SIZE + 1} bytes"}),
    ],
    ids=["absent", "short", "wrong", "too-long"],
)
def test_what_is_not_that_content_gets_no_name(store: Store, left: bytes | None, answer: dict[str, object]) -> None:
    store.look([])
    if left is not None:
        part_of(store).write_bytes(left)
    assert store.commit(NAME, SIZE, False) == answer
    assert not path_of(store).exists()
    assert part_of(store).exists() == ("short" in answer), "a wrong one is thrown away"


def test_one_writes_at_a_time(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT[:4000])
    with held(part_of(store)):
        assert store.append(NAME, SIZE, 4000, CONTENT[4000:]) == {"busy": True}
        assert store.commit(NAME, SIZE, False) == {"busy": True}
        assert part_of(store).stat().st_size == 4000
    assert store.append(NAME, SIZE, 4000, CONTENT[4000:]) == {"have": SIZE}


def test_a_partial_that_was_named_meanwhile_is_not_written_to(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between opening it and locking it another front may have verified it."""
    store.append(NAME, SIZE, 0, CONTENT)
    flock, named = fcntl.flock, []

    def late(fd: int, operation: int) -> None:
        if not named:
            named.append(fd)
            os.rename(part_of(store), path_of(store))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    store.append(NAME, SIZE + 1, 0, b"?" * (SIZE + 1))
    assert path_of(store).read_bytes() == CONTENT
    assert part_of(store).read_bytes() == b"?" * (SIZE + 1)


def test_modes(store: Store) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    old = os.umask(0)
    try:
        store.append(NAME, SIZE, 0, CONTENT)
    finally:
        os.umask(old)
    assert mode(part_of(store)) == 0o600
    store.commit(NAME, SIZE, False)
    assert mode(path_of(store)) == 0o444
    store.commit(NAME, SIZE, True)
    assert mode(path_of(store)) == 0o555
    store.commit(NAME, SIZE, False)
    assert mode(path_of(store)) == 0o555
    Path(store.path).chmod(0o777)
    store.look([])
    assert mode(Path(store.path)) == 0o700


def test_a_program_is_executable_from_its_first_moment(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT)
    store.commit(NAME, SIZE, True)
    assert stat.S_IMODE(path_of(store).stat().st_mode) == 0o555


def test_what_was_verified_need_not_be_read_again_for_a_run(store: Store, tmp_path: Path) -> None:
    cache = DigestCache(str(tmp_path / "state"))

    def is_known() -> bool:
        known = json.loads(Path(cache.path).read_text())
        return known.get(cache._name(os.stat(path_of(store)))) == NAME

    store.append(NAME, SIZE, 0, CONTENT)
    store.commit(NAME, SIZE, False)
    assert is_known()
    store.commit(NAME, SIZE, True)
    assert is_known()
    os.utime(path_of(store), (0, time.time() - 2 * 86400))
    store.look([(NAME, SIZE)])
    assert not is_known(), "its date was not changed by us: nobody has read it since"
    os.utime(path_of(store), (0, time.time() - 2 * 86400))
    cache.vouch(os.stat(path_of(store)), NAME)
    store.look([(NAME, SIZE)])
    assert time.time() - path_of(store).stat().st_mtime < 86400, "somebody asked for it"
    assert is_known()


def test_a_file_that_lost_its_end_is_not_whole_and_is_replaced(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT)
    store.commit(NAME, SIZE, False)
    path_of(store).chmod(0o644)
    os.truncate(path_of(store), 100)
    (seen,) = store.look([(NAME, SIZE)])["found"]
    assert (seen["whole"], seen["have"]) == (False, 0)
    store.append(NAME, SIZE, 0, CONTENT)
    assert store.commit(NAME, SIZE, False) == {"path": str(path_of(store))}
    assert path_of(store).read_bytes() == CONTENT


def test_an_empty_file(store: Store) -> None:
    name = hashlib.sha256(b"").hexdigest()
    assert store.commit(name, 0, False) == {"path": str(path_of(store, name))}
    assert path_of(store, name).read_bytes() == b""


@pytest.mark.parametrize("suffix", ["", ".part"])
def test_links_are_not_followed(store: Store, tmp_path: Path, suffix: str) -> None:
    store.look([])
    (tmp_path / "precious").write_bytes(CONTENT[:100])
    path_of(store, NAME + suffix).symlink_to(tmp_path / "precious")
    (seen,) = store.look([(NAME, None)])["found"]
    assert (seen["whole"], seen["have"]) == (False, 0)
    if suffix:
        answer, _ = told(lambda: store.append(NAME, SIZE, 0, CONTENT))
        assert "error" in answer
    else:
        store.append(NAME, SIZE, 0, CONTENT)
        store.commit(NAME, SIZE, False)
        assert not path_of(store).is_symlink()
    assert (tmp_path / "precious").read_bytes() == CONTENT[:100]


def test_a_store_that_is_a_link_or_anothers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    state = tmp_path / "state"
    state.mkdir()
    (state / "store").symlink_to(tmp_path / "elsewhere")
    assert "error" in told(lambda: Store(str(state)).look([]))[0]
    assert os.listdir(tmp_path / "elsewhere") == []
    if os.geteuid() == 0:
        (state / "store").unlink()
        (state / "store").mkdir()
        os.chown(state / "store", 12345, 12345)
        assert told(lambda: Store(str(state)).look([]))[0]["error"] == "permission"


def test_what_nobody_finishes_is_forgotten(store: Store) -> None:
    store.append(NAME, SIZE, 0, CONTENT[:100])
    os.utime(part_of(store), (0, time.time() - STALE_PARTIAL_S - 60))
    assert store.look([(NAME, SIZE)])["found"][0]["have"] == 100, "somebody goes on with it"
    assert part_of(store).exists()
    store.look([])
    assert os.listdir(store.path) == []


def test_the_room_is_that_of_the_stores_file_system(store: Store, tmp_path: Path) -> None:
    seen = store.look([])
    room = os.statvfs(tmp_path)
    assert seen["path"] == store.path
    assert abs(seen["free_bytes"] - room.f_bavail * room.f_frsize) < 1 << 30


@pytest.mark.parametrize("name", ["", "..", "a" * 63, "A" * 64, "../" + "a" * 61, 7, None])
def test_only_digests_become_names(store: Store, name: object) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        store.append(name, 1, 0, b"x")  # type: ignore[arg-type]
