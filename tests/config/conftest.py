from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.helpers_config import FakeWorkload, Folder
from sidewinder.workloads import registry


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def fake() -> Iterator[FakeWorkload]:
    workload = FakeWorkload()
    with registry.register_for_tests(workload):
        yield workload
