"""A handover: which installed executor plugin gets the ordinary jobs, and its settings as the person wrote them.

Snakemake knows the options of every installed executor plugin but reads those of the chosen one only, so theirs are
read here from the same command line, environment and profile. A program that starts Snakemake by its API gives a
settings object instead.
"""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_sidewinder.errors import SidewinderError

OPTION = "sidewinder-ordinary-executor"


@dataclass(frozen=True, slots=True)
class Handover:
    plugin: Any  # of Snakemake's registry
    settings: Any  # of the plugin's own class; None: it has no settings

    @property
    def name(self) -> str:
        return str(self.plugin.name)


def choose(name: str, settings: Any = None) -> Handover:
    """The plugin of that name with its settings. Raises SidewinderError: what is wrong with either, by option."""
    from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

    plugins = ExecutorPluginRegistry().plugins
    plugin = plugins.get(name)
    if plugin is None:
        possible = sorted(one for one in plugins if _unsuited(one, plugins[one]) is None)
        raise SidewinderError(
            f"{OPTION}: there is no executor plugin {name!r} here; installed are {', '.join(possible) or 'none'}. "
            f"Others come by `pip install snakemake-executor-plugin-NAME`."
        )
    problem = _unsuited(name, plugin)
    if problem:
        raise SidewinderError(f"{OPTION}: {name} {problem}")
    try:
        found = settings if settings is not None else _as_written(name, plugin)
        if plugin.settings_cls is not None:
            plugin.validate_settings(found)
    except WorkflowError as error:
        raise SidewinderError(f"{OPTION}: {name}: {error}") from None
    return Handover(plugin, found)


def is_ordinary(job: Any) -> bool:
    """Whether a job, or every job of a group, names neither device nor pool nor gang."""
    if job.is_group():
        return all(is_ordinary(one) for one in job.jobs)
    return not {"device", "pool", "gang"} & set(job.resources.keys())


def _unsuited(name: str, plugin: Any) -> str | None:
    """Why a plugin cannot take ordinary jobs, as the rest of a sentence that begins with its name."""
    common = plugin.common_settings
    if name == "sidewinder":
        return "cannot be handed what it hands over. Leave the option out: ordinary jobs then run on this machine"
    if common.dryrun_exec or common.touch_exec:
        return "runs no job. To look without running anything say `--dry-run`"
    if common.local_exec:
        return (
            "runs jobs on this machine, where they would run beside measurements. Leave the option out: ordinary jobs "
            "then run on this machine in turn with what is measured here"
        )
    return None


def _as_written(name: str, plugin: Any) -> Any:
    """Its settings from the command line, the environment and the profiles that Snakemake was started with."""
    if plugin.settings_cls is None:
        return None
    args = _arguments()
    if args is None or args.executor != "sidewinder" or getattr(args, OPTION.replace("-", "_"), None) != name:
        # Snakemake's API, or a program with a command line of its own: what stands there is not Snakemake's
        raise SidewinderError(
            "its settings are read from Snakemake's command line, and this program was started by another one. "
            f"Give them as ExecutorSettings(ordinary_executor={name!r}, ordinary_settings=…)."
        )
    return plugin.get_settings(args)


def _arguments() -> Any:
    from snakemake.cli import parse_args

    try:
        # it says which profile it uses, and has said so
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return parse_args(None)[1]
    except (Exception, SystemExit):  # noqa: BLE001 -- whatever it objects to is not the command line of Snakemake
        return None
