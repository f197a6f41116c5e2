"""What all tests share: in CI a test that could not run is a failure, with the reason that it gave; and their order."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Several workers take files in this order: those with the most tests first, so that none is left alone at the end
    with a long one, and between them those that hurt the one cluster for that, which would wait for each other."""
    if not hasattr(config, "workerinput"):
        return
    files = [list(group) for _, group in itertools.groupby(items, key=lambda item: item.path)]
    alone = [file for file in files if any("own_cluster" in getattr(item, "fixturenames", ()) for item in file)]
    others = sorted((file for file in files if file not in alone), key=len, reverse=True)
    every = len(others) // (len(alone) + 1)
    for place, file in enumerate(alone):
        others.insert(place * (every + 1), file)
    items[:] = itertools.chain.from_iterable(others)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, and CI must not skip: {report.longrepr}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seeds of tests that draw some, and what they say of themselves, also when all is well."""
    told = [
        f"{report.nodeid}: {value}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, value in report.user_properties
        if name in ("seeds", "mutant")
    ]
    if told:
        terminalreporter.section("seeds and mutants")
        for line in sorted(told):
            terminalreporter.line(line)
