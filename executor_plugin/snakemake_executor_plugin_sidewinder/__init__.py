"""Sidewinder's executor plugin for Snakemake: jobs with `device=` are measured there, all others run here in turn."""

from snakemake_interface_executor_plugins.settings import CommonSettings

from snakemake_executor_plugin_sidewinder.executor import Executor
from snakemake_executor_plugin_sidewinder.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    # values of environment variables do not belong on a command line that `ps` shows (B43): jobs inherit them
    pass_envvar_declarations_to_cmd=False,
    auto_deploy_default_storage_provider=False,
)
