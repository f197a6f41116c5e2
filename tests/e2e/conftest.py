from __future__ import annotations

from collections.abc import Iterator

import pytest

from plugin.helpers_plugin import Snakemake


@pytest.fixture(scope="session")
def snakemake() -> Iterator[Snakemake]:
    one = Snakemake()
    yield one
    one.close()
