"""A user's rule: a job with `device=` that is no planned point; its shell command runs on that device as it stands."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    if device.kind != "local":
        return (
            f"rule {name}: device {wanted!r} is of kind {device.kind}, and a rule of one's own runs on `local` only "
            "as yet (bringing its inputs to another machine is not built)"
        )
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


def task(job: Any) -> Task:
    """The job's formatted command, to run in place on this machine."""
    from snakemake.shell import shell

    # resources of jobs that are not local have no temporary folder until somebody decides where they run: here
    command = job.shellcmd.replace("<TBD>", tempfile.gettempdir())
    minutes = job.resources.get("runtime")
    return Task(
        argv=(shell.get_executable() or "bash", "-c", f"{shell._get_process_prefix()}{command}"),
        cwd=os.getcwd(),
        timeout_s=minutes * 60.0 if isinstance(minutes, int) and minutes > 0 else _NO_LIMIT_S,
    )


async def prepare(job: Any) -> None:
    """Make room for its outputs, as Snakemake does before it runs a job itself."""
    await job.check_protected_output()
    await job.remove_existing_output()
    for path in (*job.output, *job.log):
        path.prepare()
