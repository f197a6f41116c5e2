"""`stage` of a block: files of the controller that its commands name, known before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.helpers_config import Folder
from sidewinder.engine.staging import wanted_by
from sidewinder.files import plan as plan_file
from sidewinder.model import Plan

LAB = "devices: {pi5: {host: pi5.lan}, local: {}}\nmodels: {smol: {stage: smol.gguf, sha256: %s}}\nmatrix:\n" % (
    "a" * 64
)
BLOCK = " - {backend: command, devices: [pi5, local], "


def files(plan: Plan, device: str) -> list[list[str]]:
    lab = plan.lab
    return [
        [wanted.file for wanted in wanted_by(lab, point, lab.devices[device])]
        for point in plan.points.values()
        if point.device == device
    ]


def test_a_point_wants_the_files_that_its_own_arguments_name(folder: Folder) -> None:
    plan = folder.load(
        LAB + BLOCK + "models: smol, command: ['{script}', ./data.json, '{model_path}'],\n"
        "    parameters: {script: [./a.sh, ./b.sh]}, stage: [./a.sh, ./b.sh, ./data.json]}"
    )
    assert files(plan, "pi5") == [["smol.gguf", "./a.sh", "./data.json"], ["smol.gguf", "./b.sh", "./data.json"]]
    assert files(plan, "local") == [[], []], "used where they lie"
    (declared, *_) = wanted_by(plan.lab, next(iter(plan.points.values())), plan.lab.devices["pi5"])
    assert declared == ("smol.gguf", "models.smol.stage", "a" * 64)


def test_it_is_part_of_the_identity_by_name_and_survives_the_disk(folder: Folder, tmp_path: Path) -> None:
    with_it = folder.load(LAB + BLOCK + "command: [./a.sh], stage: ./a.sh}")
    without = folder.load(LAB + BLOCK + "command: [./a.sh]}")
    assert not set(with_it.points) & set(without.points), "another program: the controller's, not the device's"
    plan_file.publish(str(tmp_path / "runs"), with_it)
    assert plan_file.read(str(tmp_path / "runs")).points == with_it.points


@pytest.mark.parametrize(
    ("block", "key", "words"),
    [
        ("command: [./a.sh], stage: [./b.sh]", "matrix[0].stage[0]", "just this file"),
        ("command: [sh, '--file=./a.sh'], stage: [./a.sh]", "matrix[0].stage[0]", "an argument of its own"),
        ("command: [./a.sh], stage: [./a.sh, ./a.sh]", "matrix[0].stage[1]", "named twice"),
        ("command: [./a.sh], stage: 3", "matrix[0].stage", "text"),
        ("command: [./a.sh], stage: {./a.sh: yes}", "matrix[0].stage", "text"),
        ("stage: [./a.sh]", "matrix[0].stage", "of a `command`"),
    ],
)
def test_what_can_never_work_is_refused(folder: Folder, block: str, key: str, words: str) -> None:
    problems = [one for one in folder.problems(LAB + BLOCK + block + "}") if one.key == key]
    assert problems
    assert words in str(problems[0])
