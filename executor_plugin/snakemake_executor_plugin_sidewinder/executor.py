"""The executor: Snakemake's jobs go in, our work comes out, and each end is reported back.

It decides nothing. Everything that is ready goes to the engine at once; queues, turns, retries and breakers live there
(docs/design.md §7). Snakemake calls it from the main thread, the engine answers from its own.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.settings import ExecMode

from snakemake_executor_plugin_sidewinder.errors import SidewinderError
from snakemake_executor_plugin_sidewinder.foreign import ForeignJobs, log_path
from snakemake_executor_plugin_sidewinder.settings import ExecutorSettings

if TYPE_CHECKING:
    from sidewinder.model import AttemptId, Failure
    from sidewinder.sweep import Sweep
    from snakemake_executor_plugin_sidewinder.points import PointJob


class Executor(RealExecutor):  # type: ignore[misc]  # the interface has no types
    """Runs points and rules with `device=` on their devices; all else here in turn with what is measured here, or by
    the guest: the executor that the person chose for it."""

    def __post_init__(self) -> None:
        """All that can be refused is refused here, at once and before anything runs."""
        # imported here: Snakemake imports every plugin at every start, whatever it is asked to do
        from sidewinder import errors
        from sidewinder.engine import Engine
        from sidewinder.sweep import bound

        from .points import Forced, Points
        from .signals import Termination

        self._settings = self.executor_settings or ExecutorSettings()
        self._sweeps = bound(self.workflow)
        self._points = Points(self._sweeps)
        self._forced = Forced(self.workflow.dag_settings)
        self._foreign = ForeignJobs()
        self._termination = Termination(self._drain)
        self._engine = Engine(self)
        self._added: set[str] = set()
        self._open: dict[Any, Any] = {}  # the jobs that the engine works on, by the key it knows them by
        self._guest: Any = None
        self._not_started = 0
        self._why = "no new work was taken"
        self._stopped = False
        try:
            jobs = list(self.dag.needrun_jobs())
            self._admit(jobs)
            if any(self._is_handed_over(job) for job in jobs):
                self._engage()
        except (errors.SidewinderError, WorkflowError) as error:
            self._engine.shutdown(self._settings.stop_timeout)  # gives back the locks that were taken already
            raise error if isinstance(error, SidewinderError) else SidewinderError(str(error)) from None
        gc.freeze()  # plan and DAG stay to the end (Sweep says the rest)

    # -- before anything runs ------------------------------------------------------------------------------------------

    def _admit(self, jobs: list[Any]) -> None:
        """Refuse what cannot be done, by rule name and all of it in one message; take the run folders' locks."""
        from .userrule import UserRule, find, grouped, wants_device

        problems: dict[str, None] = {}
        needed: dict[str, Sweep] = {}
        forced: dict[str, set[str]] = {}
        for job in jobs:
            if job.is_local:
                continue
            point = self._points.of(job)
            if job.group is not None and wants_device(job):
                problems[grouped(job)] = None
            elif point is not None:
                needed[point.root] = point.sweep
                if self._forced and job in self._forced:
                    forced.setdefault(point.root, set()).update(point.run_ids)
            elif wants_device(job):
                place = find(job, self._sweeps)
                if isinstance(place, UserRule):
                    needed[place.root] = place.sweep
                else:
                    problems[place] = None
        if problems:
            raise SidewinderError("Nothing was started:\n" + "\n".join(f"  {problem}" for problem in problems))
        for root, sweep in needed.items():
            self._add(sweep, forced.get(root, ()))

    def _add(self, sweep: Sweep, forced: Iterable[str] = ()) -> None:
        root = sweep.folder.root
        if root in self._added:
            return
        self._engine.add_lab(root, sweep.plan, forced=frozenset(forced))
        self._added.add(root)
        sweep.publish()  # the lock is ours now: whatever another start wrote meanwhile is not the plan

    def _is_handed_over(self, job: Any) -> bool:
        from .handover import is_ordinary

        handed = self._settings.handover is not None and not job.is_local and is_ordinary(job)
        return handed and self._points.of(job) is None

    def _engage(self) -> None:
        """Not before there is a job for it: who only measures needs no cluster. One may come late, by a checkpoint."""
        from .guest import engage

        if self._guest is None:
            self._guest = engage(
                self._settings.handover,
                self.workflow,
                self.logger,
                python=self._settings.ordinary_python,
                ended=self._give_up_if_over,
            )

    # -- what Snakemake calls ------------------------------------------------------------------------------------------

    @property
    def cores(self) -> Any:
        """For spawned jobs; how many of them run at once is the engine's business."""
        return self.workflow.resource_settings.cores or "all"

    def get_exec_mode(self) -> ExecMode:
        return ExecMode.REMOTE

    def get_python_executable(self) -> str:
        return sys.executable

    def run_job(self, job: Any) -> None:
        self.run_jobs([job])

    def run_jobs(self, jobs: list[Any]) -> None:
        """Hand over everything that is ready. Must not block: Snakemake's main thread is in here."""
        from .userrule import wants_device

        self._termination.install()
        points: list[tuple[str, str]] = []
        handed: list[Any] = []
        for job in sorted(jobs, key=lambda job: -job.priority):
            point = self._points.of(job)
            if point is not None:
                points += self._hand_over(job, point)
            elif wants_device(job):
                self._run_rule(job)
            elif self._is_handed_over(job):
                handed.append(job)
            else:
                self._run_here(job)
        if points:
            self._engine.submit(points)
        if handed:  # last: it may take its time over them, and the devices are at work already
            self._hand_on(handed)

    def _hand_over(self, job: Any, point: PointJob) -> list[tuple[str, str]]:
        """The points to submit. The engine looks at the records first: after a crash Snakemake wants again what was
        running, though it may have been finished (promise 7); what the person forced was named to it in `_add`."""
        self._add(point.sweep)
        # no listing of the job and no marker yet: a point may wait for hours before it starts on its device
        self.report_job_submission(SubmittedJobInfo(job), register_job=False)
        key = (point.root, point.shard or point.run_ids[0])
        self._open[key] = job
        if point.shard is None:
            return [key]
        self._engine.submit_shard(point.root, point.shard, point.run_ids, key)
        return []

    def _run_rule(self, job: Any) -> None:
        from .userrule import UserRule, files, find, prepare, task

        place = find(job, self._sweeps)
        if not isinstance(place, UserRule):  # came by a checkpoint, after everything else was looked at
            raise SidewinderError(place)
        self.run_job_pre(job)
        self._add(place.sweep)
        self.workflow.async_run(prepare(job))
        self.report_job_submission(SubmittedJobInfo(job), register_job=False)
        key = f"rule-{job.jobid}"
        self._open[key] = job
        # what Snakemake itself would allow its files to be late
        latency_s = float(self.workflow.execution_settings.latency_wait)
        self._engine.submit_rule(key, place.device.id, place.root, task(job, place.device), files(job, latency_s))

    def _hand_on(self, jobs: list[Any]) -> None:
        try:
            self._engage()
        except WorkflowError as error:  # the first of them came by a checkpoint, in the middle of the run
            for job in jobs:
                self.report_job_error(SubmittedJobInfo(job), msg=f"{error}\n")
            return
        self._guest.run_jobs(jobs)

    def _run_here(self, job: Any) -> None:
        self.run_job_pre(job)
        self.report_job_submission(SubmittedJobInfo(job), register_job=False)
        key = f"job-{job.jobid}"
        self._open[key] = job
        run = functools.partial(self._foreign.run, self.format_job_exec(job), log_path(job))
        self._engine.submit_exclusive(key, run, job.threads)

    def handle_job_success(self, job: Any) -> None:
        if self._guest is not None and self._is_handed_over(job):
            self._guest.handle_job_success(job)

    def handle_job_error(self, job: Any) -> None:
        if self._guest is not None and self._is_handed_over(job):
            self._guest.handle_job_error(job)

    def cancel(self) -> None:
        """Ctrl-C: end what runs, in bounded time. A second Ctrl-C does not wait for proof."""
        self._stopped = True
        try:
            self._end_all()
        except KeyboardInterrupt:
            self.logger.error("Stopped at once: what still runs on a device ends by itself when its lease is over.")
        finally:
            self._termination.restore()

    def shutdown(self) -> None:
        """The end of a run, also after errors."""
        self._stopped = True
        self._end_all()
        self._termination.restore()
        self._tell_open_of_modules()

    def _end_all(self) -> None:
        leaving = None if self._guest is None else self._guest.leave()
        self._foreign.stop()
        self._end_engine()
        if leaving is not None:
            # the thread in which it watches its jobs sees between two looks only that the run is over
            looks_s = self.workflow.remote_execution_settings.seconds_between_status_checks
            leaving.join(self._settings.stop_timeout + looks_s)
            if leaving.is_alive():
                self.logger.warning(
                    f"{self._settings.ordinary_executor} did not end in time; what it was handed may go on there."
                )

    def _end_engine(self) -> None:
        from sidewinder.errors import InternalError

        if self._open:
            try:
                self._engine.cancel(drain=False)
            except InternalError:
                pass  # it has ended already, and `on_crash` has said why
        if not self._engine.shutdown(self._settings.stop_timeout):
            self.logger.warning("Something was left running on a device; it ends there when its lease is over.")

    def _tell_open_of_modules(self) -> None:
        """Snakemake registers the hooks of the main Snakefile only; a module's open points would go unsaid."""
        hook = getattr(getattr(self.workflow, "_onsuccess", None), "__code__", None)
        called = set(hook.co_names) if hook is not None else set()
        for root in sorted(self._added):
            sweep = next(one for one in self._sweeps.values() if one.folder.root == root)
            if sweep.namespace is None or {sweep.namespace, "onsuccess"} <= called:
                continue
            left = sweep.open_points()
            if left:
                self.logger.error(f"module {sweep.namespace}: {sweep.open_sentence(left)}")

    def _drain(self) -> None:
        """SIGTERM, in a thread of its own: let what runs finish, start nothing more."""
        self._why = "stopped by SIGTERM"
        self.logger.info("SIGTERM: running work may finish, no other is started.")
        self.workflow.scheduler.exit_gracefully()
        self._engine.cancel(drain=True)

    # -- what the engine calls, from its thread ------------------------------------------------------------------------

    def on_started(self, key: Any, attempt: AttemptId) -> None:
        """Now, not at hand-over: Snakemake's run time starts here, and only what ran is incomplete after a crash."""
        job = self._open.get(key)
        if job is not None:
            job.register(external_jobid=str(attempt))

    def on_done(self, key: Any, outcome: str, failure: Failure | None) -> None:
        job = self._open.pop(key, None)
        if job is None:
            return
        if outcome == "cancelled":
            self._not_started += 1
        elif outcome == "ok" or isinstance(key, tuple):
            # a failed point and a hole have a record too: the record decides, not the job
            self.report_job_success(SubmittedJobInfo(job))
        else:
            logs = {"aux_logs": [log_path(job)]} if str(key).startswith("job-") else {}
            self.report_job_error(SubmittedJobInfo(job), msg=failure.message if failure else outcome, **logs)
        self._give_up_if_over()

    def _give_up_if_over(self) -> None:
        at_work = self._open or (self._guest is not None and self._guest.open)
        if self._not_started and not at_work and not self._stopped:
            self._give_up()

    def _give_up(self) -> None:
        """Not by failing each job: Snakemake would delete the records that lie under their names."""
        self._stopped = True
        text = f"{self._why}: {self._not_started} jobs were not run. The same command goes on from here."
        self.workflow.scheduler.executor_error_callback(SidewinderError(text))

    def on_event(self, event: Mapping[str, Any]) -> None:
        from .events import emit

        job = self._open.get(event["key"]) if "key" in event else None
        emit(self.logger, event, None if job is None else job.jobid)

    def on_crash(self, error: BaseException) -> None:
        """A dead engine must not leave Snakemake waiting for ever."""
        self._stopped = True
        text = f"Sidewinder's engine ended because of a bug: {type(error).__name__}: {error}. Records are safe."
        self.workflow.scheduler.executor_error_callback(SidewinderError(text))
