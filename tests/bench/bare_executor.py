"""The bare executor: what the least one can do costs in Snakemake. Writes a record, reports success, nothing else.

The yardstick of bench_snakemake.py; installed by name as `snakemake_executor_plugin_bare` for its runs only.
"""

import json
import os
import sys

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecMode

common_settings = CommonSettings(non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False)


class Executor(RealExecutor):  # type: ignore[misc]
    cores = "all"

    def get_python_executable(self) -> str:
        return sys.executable

    def get_exec_mode(self) -> ExecMode:
        return ExecMode.REMOTE

    def run_job(self, job) -> None:  # type: ignore[no-untyped-def]
        info = SubmittedJobInfo(job)
        self.report_job_submission(info)
        path = str(job.output[0])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        run_id = os.path.basename(path).removesuffix(".json")
        with open(path + ".part", "w") as file:
            json.dump({"schema_version": 1, "run_id": run_id, "status": "ok", "metrics": {}}, file)
        os.replace(path + ".part", path)
        self.report_job_success(info)

    def cancel(self) -> None: ...

    def shutdown(self) -> None: ...
