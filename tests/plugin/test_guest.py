"""Another plugin's executor inside ours: looks that break, jobs that are forgotten, submissions and ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.real import RealExecutor
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.registry.plugin import Plugin
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase, SharedFSUsage

from snakemake_executor_plugin_sidewinder import guest
from snakemake_executor_plugin_sidewinder.guest_kubernetes import InPods
from snakemake_executor_plugin_sidewinder.handover import Handover, choose, is_ordinary

LIMIT_S = 60.0


class Job:
    """What an executor asks of a job."""

    is_updated, attempt, rules, is_local = False, 1, ("x",), False

    def __init__(self, name: str) -> None:
        self.name = self.jobid = name
        self.registered: list[str | None] = []
        self.errors: list[str] = []

    def is_group(self) -> bool:
        return False

    def log_info(self) -> None: ...

    def register(self, external_jobid: str | None = None) -> None:
        self.registered.append(external_jobid)

    def log_error(self, msg: str | None = None, **_: Any) -> None:
        self.errors.append(msg or "")

    def get_target_spec(self) -> list[Any]:
        return []

    def get_wait_for_files(self) -> list[str]:
        return []

    def format_wildcards(self, text: str) -> str:
        return text.replace("{jobid}", self.name)


class Foreign(RemoteExecutor):  # type: ignore[misc]
    """A plugin's executor of which each test says how it behaves."""

    look: Callable[[list[SubmittedJobInfo]], list[SubmittedJobInfo]]
    made: list[str]

    def __post_init__(self) -> None:
        self.cancelled: list[list[Any]] = []
        self.looks = 0

    def run_job(self, job: Any) -> None:
        if "refused" in job.name:
            raise WorkflowError(f"no room for {job.name}")
        self.made.append(job.name)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=f"there-{job.name}"))

    async def check_active_jobs(self, active_jobs: Any) -> Any:
        self.looks += 1
        for info in active_jobs:
            for one in type(self).look(self, info):  # type: ignore[call-arg,arg-type]
                yield one

    def cancel_jobs(self, active_jobs: list[Any]) -> None:
        self.cancelled.append([info.job.name for info in active_jobs])
        if len(active_jobs) > 1 and any("stuck" in info.job.name for info in active_jobs):
            raise RuntimeError("one is stuck")


class World:
    """A workflow with a scheduler that remembers, and a guest in it."""

    def __init__(self, folder: Path) -> None:
        self.finished: list[str] = []
        self.failed: list[str] = []
        self.crashes: list[Exception] = []
        self.ended = 0
        scheduler = SimpleNamespace(
            submit_callback=lambda job: None,
            finish_callback=lambda job: self.finished.append(job.name),
            error_callback=lambda job: self.failed.append(job.name),
            executor_error_callback=self.crashes.append,
        )
        factory = SimpleNamespace(general_args=lambda **_: "--general", precommand=lambda **_: "", envvars=dict)
        self.workflow: Any = SimpleNamespace(
            dag=SimpleNamespace(get_unneeded_temp_files=lambda job: []),
            scheduler=scheduler,
            spawned_job_args_factory=factory,
            main_snakefile=str(folder / "Snakefile"),
            workdir_init=str(folder / "a folder"),
            overwrite_configfiles=[],
            executor_plugin="ours",
            executor_settings="ours",
            resource_settings=SimpleNamespace(cores=None),
            group_settings=SimpleNamespace(local_groupid="local"),
            storage_settings=SimpleNamespace(shared_fs_usage=SharedFSUsage.all()),
            remote_execution_settings=SimpleNamespace(
                max_status_checks_per_second=1000,
                jobname="job.{jobid}",
                jobscript=None,
                immediate_submit=False,
                seconds_between_status_checks=0.01,
                container_image="lab:1",
            ),
        )
        self.guest: Any = None

    def engage(self, kind: type = Foreign, python: str | None = None, name: str = "foreign", **common: Any) -> Any:
        settings = ExecutorSettingsBase()
        said = {"non_local_exec": True, "implies_no_shared_fs": False, "job_deploy_sources": False, **common}
        plugin = Plugin(kind, CommonSettings(**said), ExecutorSettingsBase, name)
        self.guest = guest.engage(
            Handover(plugin, settings), self.workflow, logging.getLogger("t"), python=python, ended=self._ended
        )
        return self.guest

    def _ended(self) -> None:
        self.ended += 1

    def until(self, condition: Callable[[], object]) -> None:
        waits = threading.Event()
        for _ in range(int(LIMIT_S / 0.01)):
            if condition():
                return
            waits.wait(0.01)
        raise AssertionError(f"never: finished {self.finished}, failed {self.failed}, crashes {self.crashes}")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    (tmp_path / ".snakemake").mkdir()
    monkeypatch.chdir(tmp_path)
    one = World(tmp_path)
    yield one
    if one.guest is not None:
        one.guest.wait = False


def behaves(look: Callable[[Any, SubmittedJobInfo], list[SubmittedJobInfo]], kind: type = Foreign) -> Any:
    return type("Foreign", (kind,), {"look": look, "made": []})


def ends_by_name(executor: Any, info: SubmittedJobInfo) -> list[SubmittedJobInfo]:
    name = info.job.name
    if "broken" in name:
        raise RuntimeError("the log of the container before is not there")
    if "good" in name:
        executor.report_job_success(info)
    elif "bad" in name:
        executor.report_job_error(info, msg="it failed")
    elif "lost" not in name:
        return [info]
    return []


def test_one_look_that_breaks_costs_one_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest, "PATIENCE_S", 0.0)
    one = world.engage(behaves(ends_by_name))
    jobs = [Job(name) for name in ("good 1", "broken", "bad", "lost", "good 2")]
    one.run_jobs(jobs)
    world.until(lambda: len(world.finished + world.failed) == 5)
    assert sorted(world.finished) == ["good 1", "good 2"]
    assert sorted(world.failed) == ["bad", "broken", "lost"]
    by_name = {job.name: job.errors for job in jobs}
    assert "3 times in a row" in by_name["broken"][0]
    assert "the log of the container before is not there" in by_name["broken"][0]
    assert "it does not know it any more" in by_name["lost"][0]
    assert not world.crashes, "the run goes on"
    assert (one.open, world.ended) == (0, 5)
    assert [job.registered for job in jobs] == [[f"there-{job.name}"] for job in jobs]


def test_a_cluster_that_is_away_for_a_moment_costs_nothing(world: World) -> None:
    """Its API server is restarted: some looks raise, some forget the job. No job is lost by that."""
    silences = iter(["raise", "forget", "raise", "forget", "raise"])

    def look(executor: Any, info: SubmittedJobInfo) -> list[SubmittedJobInfo]:
        if info.job.name == "good" and (how := next(silences, None)) is not None:
            if how == "raise":
                raise ConnectionError("refused")
            return []
        executor.report_job_success(info)
        return []

    one = world.engage(behaves(look))
    one.run_jobs([Job("good"), Job("other")])
    world.until(lambda: len(world.finished) == 2)
    assert next(silences, None) is None
    assert not world.failed


def test_one_that_cannot_be_handed_over_fails_alone(world: World) -> None:
    kind = behaves(ends_by_name)
    one = world.engage(kind)
    jobs = [Job("good 1"), Job("refused"), Job("good 2")]
    one.run_jobs(jobs)
    world.until(lambda: len(world.finished) == 2)
    assert world.failed == ["refused"]
    assert "It could not be handed to foreign: WorkflowError: no room for refused" in jobs[1].errors[0]
    assert kind.made == ["good 1", "good 2"]


def test_a_plugin_that_takes_many_at_once_is_given_them_at_once(world: World) -> None:
    class Many(Foreign):
        def run_jobs(self, jobs: list[Any]) -> None:
            self.made.append("+".join(job.name for job in jobs))
            self.report_job_submission(SubmittedJobInfo(jobs[0], external_jobid="1"))
            raise RuntimeError("the rest is too much")

    kind = behaves(ends_by_name, Many)
    world.engage(kind).run_jobs([Job("good 1"), Job("good 2"), Job("good 3")])
    world.until(lambda: len(world.finished) == 1)
    assert kind.made == ["good 1+good 2+good 3"]
    assert world.failed == ["good 2", "good 3"]


def test_an_end_counts_once_and_a_repeated_job_again(world: World) -> None:
    one = world.engage(behaves(lambda executor, info: [info]))
    job = Job("again")
    for _ in range(2):  # `retries:` hands over the same job
        one.run_jobs([job])
        info = SubmittedJobInfo(job, external_jobid="there-again")
        one.report_job_error(info, msg="x")
        one.report_job_success(info)
        one.report_job_error(info, msg="x")
    assert (world.failed, world.finished, world.ended) == (["again", "again"], [], 2)


def test_leaving_cancels_all_that_run_also_those_that_are_being_looked_at(world: World) -> None:
    looking, go = threading.Event(), threading.Event()

    def look(executor: Any, info: SubmittedJobInfo) -> list[SubmittedJobInfo]:
        looking.set()
        assert go.wait(LIMIT_S)
        return [info]

    one = world.engage(behaves(look))
    one.run_jobs([Job("a"), Job("stuck")])
    assert looking.wait(LIMIT_S)
    thread = one.leave()
    go.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert not one.wait_thread.is_alive()
    assert one.cancelled == [["a", "stuck"], ["a"], ["stuck"]], "and one that is stuck does not keep the other running"


def test_leaving_when_nothing_runs_cancels_nothing(world: World) -> None:
    one = world.engage(behaves(ends_by_name))
    one.run_jobs([Job("good")])
    world.until(lambda: world.finished)
    one.leave().join(LIMIT_S)
    assert one.cancelled == []
    assert not one.wait_thread.is_alive()


def test_the_other_plugin_sees_itself_chosen_and_nothing_of_it_is_changed(world: World) -> None:
    before = dict(vars(Foreign))
    one = world.engage(behaves(ends_by_name))
    assert one.workflow.executor_plugin.name == "foreign"
    assert isinstance(one.executor_settings, ExecutorSettingsBase)
    assert one.workflow.main_snakefile == world.workflow.main_snakefile
    assert one.cores == "all"
    assert dict(vars(Foreign)) == before


def test_on_a_shared_folder_jobs_enter_it_and_use_the_python_of_their_image(world: World) -> None:
    kind = behaves(ends_by_name)
    shared = world.engage(kind)
    assert not shared.format_job_exec(Job("x")).lstrip().startswith("cd ")
    shared.wait = False
    command = world.engage(kind, implies_no_shared_fs=True).format_job_exec(Job("x"))
    assert command.startswith(f"cd '{world.workflow.workdir_init}' && python -m snakemake ")
    world.guest.wait = False
    command = world.engage(kind, python="/opt/py", implies_no_shared_fs=True).format_job_exec(Job("x"))
    assert " && /opt/py -m snakemake " in command
    common = world.guest.common_settings
    assert (common.implies_no_shared_fs, common.auto_deploy_default_storage_provider) == (False, False)


def test_a_version_that_is_not_known_fails_loudly(world: World) -> None:
    class Other(RealExecutor):  # type: ignore[misc]
        get_job_exec_prefix = None

    with pytest.raises(WorkflowError, match="this version of snakemake-executor-plugin-foreign has no get_job_exec"):
        world.engage(Other)

    class Deaf(Foreign):
        def format_job_exec(self, job: Any) -> str:
            return "python -m snakemake"

    one = world.engage(behaves(ends_by_name, Deaf), implies_no_shared_fs=True)
    with pytest.raises(WorkflowError, match="does not ask how a job is entered"):
        one.format_job_exec(Job("x"))
    one.wait = False

    class NoApi(InPods, Foreign): ...

    with pytest.raises(WorkflowError, match="this version of snakemake-executor-plugin-kubernetes is not known"):
        world.engage(behaves(ends_by_name, NoApi))


def test_without_shared_files_it_is_refused(world: World) -> None:
    world.workflow.storage_settings.shared_fs_usage = frozenset({SharedFSUsage.SOURCES})
    with pytest.raises(WorkflowError, match="--shared-fs-usage has no `input-output`"):
        world.engage(behaves(ends_by_name))


def test_of_a_pod_that_failed_its_own_log_is_read() -> None:
    asked: list[dict[str, Any]] = []

    class Api:
        def read_namespaced_pod_log(self, **options: Any) -> str:
            asked.append(options)
            return "why"

    class Plugged(InPods):
        cores = None
        run_job = cancel = shutdown = get_exec_mode = get_python_executable = None

        def __init__(self) -> None: ...

    one: Any = Plugged()
    for _ in range(2):  # again when its token ran out
        one.kubeapi = Api()
        assert one.kubeapi.read_namespaced_pod_log(name="p", previous=True) == "why"
    assert asked == [{"name": "p", "previous": False}] * 2


def test_a_guest_that_cannot_start_says_what_it_said(world: World) -> None:
    class NoConfig(Foreign):
        def __post_init__(self) -> None:
            raise OSError("no kubeconfig")

    before = set(threading.enumerate())
    with pytest.raises(WorkflowError, match="foreign could not be started: OSError: no kubeconfig"):
        world.engage(behaves(ends_by_name, NoConfig))
    for thread in set(threading.enumerate()) - before:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "nor does anything of it go on"


def test_by_the_api_its_settings_are_an_object() -> None:
    settings = choose_settings(submit_cmd="qsub")
    assert choose("cluster-generic", settings).settings is settings
    with pytest.raises(WorkflowError, match="--cluster-generic-submit-cmd"):
        choose("cluster-generic", choose_settings())
    with pytest.raises(WorkflowError, match="ordinary_settings="):
        choose("cluster-generic")  # the command line here is pytest's


def choose_settings(**settings: Any) -> Any:
    from snakemake_executor_plugin_cluster_generic import ExecutorSettings

    return ExecutorSettings(**settings)


def test_ordinary_is_what_names_no_device_pool_or_gang() -> None:
    def job(**resources: Any) -> Any:
        return SimpleNamespace(is_group=lambda: False, resources=resources)

    def group(*jobs: Any) -> Any:
        return SimpleNamespace(is_group=lambda: True, jobs=jobs)

    assert is_ordinary(job(mem_mb=5))
    assert is_ordinary(group(job(), job(runtime=3)))
    for named in ("device", "pool", "gang"):
        assert not is_ordinary(job(**{named: "x"}))
        assert not is_ordinary(group(job(), job(**{named: "x"})))


def test_the_guard_is_of_the_loop_that_the_plugin_looks_in(world: World) -> None:
    """Snakemake's watching thread looks once before the first job is there: nothing to see, nothing said."""
    one = world.engage(behaves(ends_by_name))
    world.until(lambda: one.looks)

    async def seen() -> list[Any]:
        return [info async for info in one.check_active_jobs([])]

    assert asyncio.run(seen()) == []
