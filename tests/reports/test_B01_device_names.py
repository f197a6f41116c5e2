"""B01: names with a dash, dot or underscore work and are matched literally; all others are refused by name and rule."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from sidewinder import config
from sidewinder.errors import ConfigError

GOOD = ("rig-07.lab", "rig-07xlab", "7b-9_2")


def lab(tmp_path: Path, *names: str) -> str:
    devices = "".join(f"  '{name}': {{}}\n" for name in names)
    listed = ", ".join(f"'{name}'" for name in names)
    file = tmp_path / "lab.yaml"
    file.write_text(
        f"devices:\n{devices}matrix: {{devices: [{listed}], backend: noop, parameters: {{n-gpu: [1, 2]}}}}\n",
        encoding="utf-8",
    )
    return str(file)


def test_legal_names_give_two_points_each_and_stay_apart(tmp_path: Path) -> None:
    plan = config.load_files([lab(tmp_path, *GOOD)])
    for name in GOOD:
        own = [point for point in plan.points.values() if point.device == name]
        assert [point.parameters for point in own] == [{"n-gpu": 1}, {"n-gpu": 2}]
        assert len(config.select(plan, device=name).selected or ()) == 2
    assert len(plan.points) == 6


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_that_is_not_allowed_is_refused_with_file_and_rule(tmp_path: Path, form: str) -> None:
    name = unicodedata.normalize(form, "Gerät-ü")
    with pytest.raises(ConfigError) as caught:
        config.load_files([lab(tmp_path, "ok", name)])
    text = str(caught.value)
    assert f"{tmp_path}/lab.yaml:3: devices.{name}: " in text
    assert "A-Z a-z 0-9 . _ -" in text


def test_twins_in_two_unicode_forms_are_refused(tmp_path: Path) -> None:
    twins = (unicodedata.normalize(form, "Gerät") for form in ("NFC", "NFD"))
    with pytest.raises(ConfigError, match="Unicode form only"):
        config.load_files([lab(tmp_path, *twins)])
