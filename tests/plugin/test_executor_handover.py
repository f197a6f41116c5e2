"""Snakemake's own test base again, with every job handed on to another executor plugin, by Snakemake's API."""

from __future__ import annotations

import snakemake_executor_plugin_cluster_generic as cluster_generic
from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake.settings.types import RemoteExecutionSettings

from snakemake_executor_plugin_sidewinder import ExecutorSettings


class TestWorkflows(TestWorkflowsLocalStorageBase):  # type: ignore[misc]
    """By `cluster-generic`, whose command here runs each job while it submits it."""

    __test__ = True

    def get_executor(self) -> str:
        return "sidewinder"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings(
            ordinary_executor="cluster-generic", ordinary_settings=cluster_generic.ExecutorSettings(submit_cmd="sh")
        )

    def get_remote_execution_settings(self) -> RemoteExecutionSettings:
        return RemoteExecutionSettings(seconds_between_status_checks=1)
