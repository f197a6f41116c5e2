"""A guest: the executor of another installed plugin at work inside ours, with the jobs that it was handed.

It is a subclass of that plugin's executor, made when the run begins, so nothing of the other package is changed. It
sees the workflow as if it had been chosen itself. What it may not do is end a run in which devices are being measured:
where it fails over one job, by raising or by forgetting it, that job fails alone.
"""

from __future__ import annotations

import dataclasses
import shlex
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import AbstractExecutor, SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import SharedFSUsage

from snakemake_executor_plugin_sidewinder.errors import SidewinderError
from snakemake_executor_plugin_sidewinder.handover import OPTION, Handover

LOOKS = 3  # without an answer about a job, and for that long, before it counts as lost
PATIENCE_S = 120.0
_NEEDED = (
    "run_jobs",
    "run_job",
    "format_job_exec",
    "get_job_exec_prefix",
    "get_python_executable",
    "cancel",
    "shutdown",
)


def engage(handover: Handover, workflow: Any, logger: Any, *, python: str | None, ended: Callable[[], None]) -> Any:
    """Make the executor. ``ended`` is called, from any thread, after each of its jobs that has ended.

    Raises SidewinderError: the plugin cannot work here, is of a version that nobody knows, or could not start.
    """
    plugin = handover.plugin
    missing = [name for name in _NEEDED if not callable(getattr(plugin.executor, name, None))]
    if missing or not issubclass(plugin.executor, RealExecutor):
        what = f"has no {', '.join(missing)}" if missing else "runs no real jobs"
        raise SidewinderError(f"{OPTION}: this version of {_package(handover)} {what}; Sidewinder cannot hand it jobs.")
    if SharedFSUsage.INPUT_OUTPUT not in workflow.storage_settings.shared_fs_usage:
        raise SidewinderError(
            f"{OPTION}: {handover.name} works on the files of this run folder, and --shared-fs-usage has no "
            "`input-output`."
        )
    bases: list[type] = [Guest]
    if plugin.common_settings.implies_no_shared_fs:
        bases = [Guest, OnSharedFolder]
        # what its jobs are started with must not fetch what lies in the shared folder, nor install anything
        common = dataclasses.replace(
            plugin.common_settings,
            implies_no_shared_fs=False,
            job_deploy_sources=False,
            auto_deploy_default_storage_provider=False,
        )
        plugin = dataclasses.replace(plugin, common_settings=common)
    if handover.name == "kubernetes":
        from snakemake_executor_plugin_sidewinder.guest_kubernetes import InPods, refuse

        refuse(handover.settings, workflow)
        bases.append(InPods)
    own = {"_name": handover.name, "_python": python, "_told": staticmethod(ended)}
    kind: Any = type("Guest", (*bases, plugin.executor), own)
    try:
        return kind(_Seen(workflow, plugin, handover.settings), logger)
    except WorkflowError as error:
        raise SidewinderError(f"{OPTION}: {handover.name} could not be started: {error}") from None
    except Exception as error:  # foreign code: no kubeconfig, no such command, ...
        raise SidewinderError(
            f"{OPTION}: {handover.name} could not be started: {type(error).__name__}: {error}"
        ) from error


def _package(handover: Handover) -> str:
    return f"snakemake-executor-plugin-{handover.name}"


class _Seen:
    """The workflow as the other plugin is to see it: its own plugin and settings, everything else as it is."""

    def __init__(self, workflow: Any, plugin: Any, settings: Any) -> None:
        self._workflow, self.executor_plugin, self.executor_settings = workflow, plugin, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workflow, name)


class Guest(RealExecutor):  # type: ignore[misc]  # the interface has no types
    """What is put over the other plugin's executor."""

    _name: str
    _python: str | None
    _told: Callable[[], None]

    def __init__(self, workflow: Any, logger: Any) -> None:
        self._mine = threading.Lock()
        self._out: dict[Any, SubmittedJobInfo | None] = {}  # by job; None: being handed over
        self._silent: dict[Any, tuple[float, int]] = {}  # since when, and how many looks said nothing
        try:
            super().__init__(workflow, logger)
        except BaseException:
            self.wait = False  # its thread began before what went wrong
            raise

    @property
    def open(self) -> int:
        """How many jobs it has that have not ended."""
        return len(self._out)

    # -- handing over

    def run_jobs(self, jobs: list[Any]) -> None:
        """Never raises for a job: one that cannot be handed over has failed."""
        with self._mine:
            self._out.update(dict.fromkeys(jobs))
        by_one = getattr(super().run_jobs, "__func__", None) is AbstractExecutor.run_jobs
        for some in [[job] for job in jobs] if by_one else [jobs]:
            try:
                super().run_jobs(some)
            except Exception as error:  # noqa: BLE001 -- foreign code: what it raises is these jobs' failure
                self._not_taken(some, error)

    def _not_taken(self, jobs: Iterable[Any], error: Exception) -> None:
        for job in jobs:
            if job in self._out and self._out[job] is None:
                self.report_job_error(
                    SubmittedJobInfo(job), msg=f"It could not be handed to {self._name}: {_said(error)}\n"
                )

    def get_python_executable(self) -> str:
        return self._python or str(super().get_python_executable())

    # -- what it reports: each job's end once

    def report_job_submission(self, job_info: SubmittedJobInfo, *args: Any, **kwargs: Any) -> None:
        with self._mine:
            self._out[job_info.job] = job_info
        super().report_job_submission(job_info, *args, **kwargs)

    def report_job_success(self, job_info: SubmittedJobInfo) -> None:
        if self._ends(job_info.job):
            super().report_job_success(job_info)
            self._told()

    def report_job_error(self, job_info: SubmittedJobInfo, msg: str | None = None, **kwargs: Any) -> None:
        if self._ends(job_info.job):
            super().report_job_error(job_info, msg=msg, **kwargs)
            self._told()

    def _ends(self, job: Any) -> bool:
        with self._mine:
            self._silent.pop(job, None)
            return self._out.pop(job, self) is not self

    # -- looking after what runs

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncIterator[SubmittedJobInfo]:
        """The plugin's own look, but one that breaks over a job, or says nothing of it, costs that job alone."""
        active, error = await self._look(active_jobs)
        errors: dict[Any, Exception | None] = {}
        known = {info.job for info in active}
        if error is not None:
            for info in active_jobs:
                if info.job in self._out and info.job not in known:
                    found, errors[info.job] = await self._look([info])
                    active += found
                    known.update(one.job for one in found)
        for info in active:
            self._silent.pop(info.job, None)
            yield info
        for info in active_jobs:
            if info.job in self._out and info.job not in known and self._waits_on(info, errors.get(info.job)):
                yield info

    async def _look(self, infos: list[SubmittedJobInfo]) -> tuple[list[SubmittedJobInfo], Exception | None]:
        active: list[SubmittedJobInfo] = []
        try:
            async for info in super().check_active_jobs(infos):
                active.append(info)
        except Exception as error:  # noqa: BLE001 -- foreign code, and the end of its thread is the end of the run
            return active, error
        return active, None

    def _waits_on(self, info: SubmittedJobInfo, error: Exception | None) -> bool:
        """Whether a job of which nothing could be learned is asked for again; else it has failed now."""
        now_s = time.monotonic()
        since_s, looks = self._silent.get(info.job, (now_s, 0))
        if looks == 0 and error is not None:
            self.logger.warning(f"{self._name} could not look at job {info.external_jobid}: {_said(error)}")
        self._silent[info.job] = (since_s, looks + 1)
        if looks + 1 < LOOKS or now_s - since_s < PATIENCE_S:
            return True
        self.report_job_error(
            info,
            msg=f"{self._name} could say nothing of it {looks + 1} times in a row, for {now_s - since_s:.0f} s: "
            f"{'it does not know it any more' if error is None else _said(error)}\n",
        )
        return False

    # -- the end

    def leave(self) -> threading.Thread:
        """End: what still runs is cancelled. In a thread, because a cluster may take its time to answer."""
        thread = threading.Thread(target=self._leave, name="sidewinder-guest-ends", daemon=True)
        thread.start()
        return thread

    def _leave(self) -> None:
        try:
            self.cancel() if self._out else self.shutdown()
        except Exception as error:  # noqa: BLE001 -- foreign code; the run ends whatever it says
            self.logger.warning(f"{self._name} could not be ended in order: {_said(error)}")

    def cancel(self) -> None:
        if getattr(super().cancel, "__func__", None) is not RemoteExecutor.cancel:
            super().cancel()
            return
        # not RemoteExecutor.cancel: it forgets the jobs that are just being looked at
        with self._mine:
            running = [info for info in self._out.values() if info is not None]
        try:
            self.cancel_jobs(running)
        except Exception:  # noqa: BLE001 -- one that cannot be cancelled must not keep the others running
            for info in running:
                self._cancel(info)
        finally:
            self.shutdown()

    def _cancel(self, info: SubmittedJobInfo) -> None:
        try:
            self.cancel_jobs([info])
        except Exception as error:  # noqa: BLE001 -- foreign code
            self.logger.warning(f"Job {info.external_jobid} of {self._name} may go on: {_said(error)}")


class OnSharedFolder(RealExecutor):  # type: ignore[misc]
    """For a plugin that expects no shared file system: its jobs work in the run folder, which is mounted there."""

    def get_job_exec_prefix(self, job: Any) -> str:
        own = super().get_job_exec_prefix(job)
        return f"{self._enter()} && {own}" if own else self._enter()

    def get_python_executable(self) -> str:
        return "python"  # that of the image; the path of ours means nothing there

    def format_job_exec(self, job: Any) -> str:
        command = str(super().format_job_exec(job))
        if not command.startswith(f"{self._enter()} && "):
            raise SidewinderError(
                f"this version of the plugin does not ask how a job is entered, it would run elsewhere: {command[:200]}"
            )
        return command

    def _enter(self) -> str:
        return f"cd {shlex.quote(str(self.workflow.workdir_init))}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:500]}"
