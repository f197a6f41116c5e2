"""Two run folders whose report is built once: drawing costs a second or two."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from report import helpers_report as helpers
from sidewinder import report
from sidewinder.files.summary import Summary
from sidewinder.model import Plan


@dataclass(frozen=True)
class Built:
    folder: Path
    plan: Plan
    summary: Summary

    @property
    def html(self) -> str:
        return (self.folder / "summary" / "report.html").read_text(encoding="utf-8")


def build(sweep: helpers.Sweep) -> Built:
    plan = sweep.publish()
    found = report.build(sweep.root, plan, generated=helpers.GENERATED)
    return Built(Path(sweep.root), plan, found)


@pytest.fixture(scope="session")
def eventful(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(helpers.eventful(str(tmp_path_factory.mktemp("eventful"))))


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(helpers.twelve(str(tmp_path_factory.mktemp("twelve"))))
