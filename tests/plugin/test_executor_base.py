"""Snakemake's own test base for executors: an ordinary workflow and one with groups run as they are."""

from __future__ import annotations

from snakemake.common.tests import TestWorkflowsLocalStorageBase

from snakemake_executor_plugin_sidewinder import ExecutorSettings


class TestWorkflows(TestWorkflowsLocalStorageBase):  # type: ignore[misc]
    __test__ = True

    def get_executor(self) -> str:
        return "sidewinder"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings()
