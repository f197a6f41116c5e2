"""Devices whose records show one boot id and that took no turns: the page says so before anything else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from report.conftest import Built, build
from report.helpers_report import Sweep, parse_html, words_of

BOOT = "b5d0f7c2-2f3a-4a54-9a3a-0b9a9f7f5d11"


def built(tmp_path: Path, boots: dict[str, list[str]], **group: Any) -> Built:
    sweep = Sweep(str(tmp_path / "runs"), devices=boots)
    sweep.devices = {name: replace(device, settings={"host": name}, **group) for name, device in sweep.devices.items()}
    for device, shown in boots.items():
        for i, boot in enumerate(shown):
            point = sweep.point(f"p{i}-{device}", device, quantization="q4_1", threads=1)
            record = sweep.ok(point)
            record["device"]["boot_id"] = boot
            sweep.write(point, record)
    return build(sweep)


def alarms(page: Built) -> list[str]:
    tree = parse_html(page.html)
    return [words_of(one) for one in tree.xpath('//header//p[contains(@class, "alarm")]')]


def test_it_stands_at_the_top_by_the_records_alone(tmp_path: Path) -> None:
    (said,) = alarms(built(tmp_path, {"pi5": [BOOT], "pi5-again": [BOOT, BOOT], "orin": ["another"]}))
    assert "pi5 and pi5-again show one boot id" in said
    assert "same machine, or share its kernel" in said
    assert "resource_group" in said
    assert "orin" not in said


def test_a_boot_in_common_among_several_is_enough(tmp_path: Path) -> None:
    assert len(alarms(built(tmp_path, {"pi5": ["monday", "tuesday"], "pi5-again": ["tuesday"]}))) == 1


@pytest.mark.parametrize(
    ("boots", "group"),
    [
        ({"pi5": [BOOT], "pi5-again": [BOOT]}, {"resource_group": "box"}),
        ({"pi5": [BOOT], "pi5-again": ["another"]}, {}),
        ({"pi5": [BOOT, BOOT]}, {}),
        ({"pi5": [BOOT], "pi5-again": []}, {}),
    ],
    ids=["turns", "two machines", "one device", "never measured"],
)
def test_nothing_to_say(boots: dict[str, list[str]], group: dict[str, Any], tmp_path: Path) -> None:
    assert alarms(built(tmp_path, boots, **group)) == []
