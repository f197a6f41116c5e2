"""B06: a number has one spelling, so that 0.001 and 1e-3 are one point on every load."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidewinder import config, ids
from sidewinder.errors import ConfigError


def lab(tmp_path: Path, axis: str) -> str:
    file = tmp_path / "lab.yaml"
    file.write_text(f"devices: {{a: {{}}}}\nmatrix:\n- devices: a\n  backend: noop\n  {axis}\n")
    return str(file)


@pytest.mark.parametrize(
    ("axis", "told"),
    [
        ("parameters: {lr: [0.001, 1e-3, 1.0e-3, 1E-3]}", "0.001 (4 times)"),
        ("parameters: {x: [0.1, 1e-1, 0.10]}", "0.1 (3 times)"),
        ("parameters: {n: [2, 2.0]}", "2 (2 times)"),
        ("parameters: {z: [0.0, -0.0]}", "0 (2 times)"),
        ("parameters: {big: [1e22, 10000000000000000000000]}", "10000000000000000000000 (2 times)"),
        ("threads: [2, 2.0, 2e0]", "2 (3 times)"),
    ],
)
def test_spellings_of_one_number_are_told_as_duplicates(tmp_path: Path, axis: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load_files([lab(tmp_path, axis)])
    assert told in str(caught.value)
    assert f"{tmp_path}/lab.yaml:5: " in str(caught.value)


@pytest.mark.parametrize("spelling", ["0.001", "1e-3", "1.0e-3", "1E-3", "+.1e-2"])
def test_every_spelling_has_the_same_run_id_and_is_a_number(tmp_path: Path, spelling: str) -> None:
    plan = config.load_files([lab(tmp_path, f"parameters: {{lr: {spelling}}}")])
    ((run_id, point),) = plan.points.items()
    assert point.parameters == {"lr": 0.001}
    (reference,) = config.load_files([lab(tmp_path, "parameters: {lr: 0.001}")]).points
    assert run_id == reference


def test_a_point_that_went_through_json_keeps_its_id(tmp_path: Path) -> None:
    plan = config.load_files([lab(tmp_path, "parameters: {lr: [1e-3, 2.0, 1e22, 0.1]}")])
    device = plan.lab.devices["a"]
    for run_id, point in plan.points.items():
        identity = json.loads(json.dumps(ids.identity(point, device)))
        assert ids.run_id(identity, ids.slug_parts(point)) == run_id


def test_a_text_where_a_number_is_declared_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load_files([lab(tmp_path, "threads: [1, two]")])
    assert "lab.yaml:5: matrix[0].threads[1]: must be a whole number, this is text (got 'two')" in str(caught.value)


def test_a_quoted_number_in_parameters_stays_text(tmp_path: Path) -> None:
    plan = config.load_files([lab(tmp_path, "parameters: {version: ['2', '1.10']}")])
    assert [point.parameters["version"] for point in plan.points.values()] == ["2", "1.10"]
