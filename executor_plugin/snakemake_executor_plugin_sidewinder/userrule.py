"""A user's rule: a job with `device=` that is no planned point; its shell command runs on that device as it stands.

On `local` it runs in the working directory. Elsewhere it runs in a fresh folder that holds its inputs under the
relative paths that the command names; what means something on this machine alone is refused before anything runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sidewinder.engine.rulefiles import RuleFiles
from sidewinder.model import Device, Task
from sidewinder.sweep import Sweep

_NO_LIMIT_S = 30 * 86400.0  # a rule that says no `runtime` means to take as long as it takes


@dataclass(frozen=True, slots=True)
class UserRule:
    """Where such a job goes: the lab (its run folder) and the device in it."""

    sweep: Sweep
    device: Device

    @property
    def root(self) -> str:
        return self.sweep.folder.root


def wants_device(job: Any) -> bool:
    if job.is_group():
        return any(wants_device(one) for one in job.jobs)
    return "device" in job.resources.keys()  # noqa: SIM118 -- Snakemake's resources have no __contains__


def find(job: Any, sweeps: Mapping[str, Sweep]) -> UserRule | str:
    """The job's place, or why there is none, in one sentence that names the rule."""
    if job.is_group():
        return grouped(next(one for one in job.jobs if wants_device(one)))
    rule, name = job.rule, job.rule.name
    problem = _unsuited(job)
    if problem:
        return f"rule {name}: {problem}"
    wanted = job.resources.get("device")
    lab = job.resources.get("lab")
    homes = [
        sweep
        for sweep in sweeps.values()
        if wanted in sweep.plan.lab.devices and lab in (None, sweep.plan.lab.experiment, sweep.folder.root)
    ]
    if not homes:
        known = sorted({device for sweep in sweeps.values() for device in sweep.plan.lab.devices})
        which = f"the known ones are {', '.join(known)}" if known else "this workflow loads no lab"
        return f"rule {rule.name}: there is no device {wanted!r}{f' in lab {lab!r}' if lab else ''}; {which}"
    devices = {repr(sweep.plan.lab.devices[wanted]) for sweep in homes}
    if len(devices) > 1:
        labs = ", ".join(sorted(sweep.plan.lab.experiment for sweep in homes))
        return f"rule {name}: device {wanted!r} is another machine in each of the labs {labs}; say which by `lab=`"
    device = homes[0].plan.lab.devices[wanted]
    problem = None if device.kind == "local" else _bound_to_here(job)
    if problem:
        return f"rule {name}: {problem}"
    return UserRule(homes[0], device)


def grouped(job: Any) -> str:
    return f"rule {job.rule.name}: jobs of a group cannot run on a device; take `group:` or `device=` away"


def _unsuited(job: Any) -> str | None:
    rule = job.rule
    directive = next(
        (
            what
            for what, used in (
                ("script:", rule.script),
                ("notebook:", rule.notebook),
                ("wrapper:", rule.wrapper),
                ("cwl:", rule.cwl),
                ("template_engine:", rule.template_engine),
                ("run:", rule.is_run),
            )
            if used
        ),
        None,
    )
    if directive or not rule.shellcmd:
        return f"`{directive or 'no shell:'}` cannot run on a device; only `shell:` can"
    for what, used in (
        ("conda:", job.conda_env_spec),
        ("container:", job.container_img_url),
        ("shadow:", job.is_shadow),
        ("benchmark:", job.benchmark),
        ("a pipe or service output", job.pipe_or_service_output),
    ):
        if used:
            return f"`{what}` cannot be had on a device; the command must find what it needs there"
    return None


def _bound_to_here(job: Any) -> str | None:
    """What of this job has a meaning on this machine only."""
    from snakemake.io import is_flagged

    for what, paths in (("input", job.input), ("output", job.output), ("log", job.log)):
        for path in paths:
            for flag, called in (
                ("storage_object", "a file of storage()"),
                ("pipe", "a pipe()"),
                ("service", "a service()"),
                ("update", "of update(), which goes on with the file that is there"),
            ):
                if is_flagged(path, flag):
                    return f"{what} {path} is {called}: that cannot be had on another machine"
            if os.path.isabs(path):
                return (
                    f"{what} {path} is an absolute path: on another machine the command would look for it there. Name "
                    "it relative to the working directory; what lies on the device already belongs into `params:`"
                )
            if os.path.normpath(path).split("/")[0] == "..":
                return (
                    f"{what} {path} leads out of the working directory: on another machine the command runs in a "
                    "folder of its own, with nothing above it"
                )
    if any(job.is_pipe_or_service_input(path) for path in job.input):
        return "it reads from a pipe() or service(): that cannot be had on another machine"
    if _NO_TMPDIR in (job.shellcmd or ""):
        return (
            "its command names {resources.tmpdir}, a folder of this machine: on another one it runs in a fresh folder "
            "of its own, which is removed afterwards, so write there (`mktemp -p .`)"
        )
    return None


# resources of jobs that are not local have no temporary folder until somebody decides where they run
_NO_TMPDIR = "<TBD>"


def task(job: Any, device: Device) -> Task:
    """The job's formatted command: to run in place on this machine, in a fresh folder on any other."""
    from snakemake.shell import shell

    here = device.kind == "local"
    interpreter = shell.get_executable() or "bash"
    minutes = job.resources.get("runtime")
    return Task(
        argv=(
            interpreter if here else os.path.basename(interpreter),
            "-c",
            f"{shell._get_process_prefix()}{job.shellcmd.replace(_NO_TMPDIR, tempfile.gettempdir())}",
        ),
        cwd=os.getcwd() if here else None,
        timeout_s=minutes * 60.0 if isinstance(minutes, int) and minutes > 0 else _NO_LIMIT_S,
    )


def files(job: Any, latency_wait_s: float) -> RuleFiles:
    """What the command reads and writes. An output of touch() is Snakemake's to make."""
    from snakemake.io import is_flagged

    outputs = [path for path in job.output if not is_flagged(path, "touch")]
    return RuleFiles(
        os.getcwd(),
        inputs=_short(job.input),
        outputs=_short(outputs),
        logs=_short(job.log),
        latency_wait_s=latency_wait_s,
    )


def _short(paths: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(os.path.normpath(str(path)) for path in paths))


async def prepare(job: Any) -> None:
    """Make room for its outputs, as Snakemake does before it runs a job itself."""
    await job.check_protected_output()
    await job.remove_existing_output()
    for path in (*job.output, *job.log):
        path.prepare()
