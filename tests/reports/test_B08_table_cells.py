"""B08: booleans of a table arrive as booleans, a blank cell is an absent parameter, NaN is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidewinder import config
from sidewinder.errors import ConfigError


def points(tmp_path: Path, *rows: str) -> list[dict[str, Any]]:
    (tmp_path / "sweep.tsv").write_text("\n".join(rows) + "\n")
    asked = {"devices": {"a": {}}, "matrix": {"from": "sweep.tsv", "devices": "a", "backend": "noop"}}
    return [dict(point.parameters) for point in config.load(asked, base_dir=str(tmp_path)).points.values()]


def test_types_arrive(tmp_path: Path) -> None:
    found = points(tmp_path, "flash\tseed\ttemp", "True\t1\t0.5", "False\t\t0.0")
    assert found == [{"flash": True, "seed": 1, "temp": 0.5}, {"flash": False, "temp": 0}]
    assert [type(row["flash"]) for row in found] == [bool, bool]


@pytest.mark.parametrize("cell", ["nan", "NaN", ".nan", "inf", "-inf", "-.Inf"])
def test_nan_is_refused_with_its_line(tmp_path: Path, cell: str) -> None:
    with pytest.raises(ConfigError) as caught:
        points(tmp_path, "temp", "0.5", cell)
    assert "sweep.tsv:3: matrix.from: column 'temp': NaN and infinities" in str(caught.value)


def test_zero_and_minus_zero_are_one_point(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 points are the same measurement"):
        points(tmp_path, "temp", "0.0", "-0.0")
