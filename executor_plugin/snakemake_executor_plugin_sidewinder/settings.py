"""The settings: what a profile or the command line may say about the executor beyond the lab's config."""

# No `from __future__ import annotations` here: Snakemake calls each annotation to convert what was written.
from dataclasses import InitVar, dataclass, field
from typing import Any, Optional

from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

from snakemake_executor_plugin_sidewinder.errors import SidewinderError


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # the interface has no types
    """Checked whenever Snakemake starts, also for a dry run.

    ``ordinary_settings`` is for who starts Snakemake by its API: an object of the other plugin's ``ExecutorSettings``.
    On a command line and in a profile that plugin's own options are used.
    """

    stop_timeout: int = field(
        default=20,
        metadata={
            "help": "Seconds that stopping may take (Ctrl-C, the end of a run): what does not answer by then is left "
            "to its lease, after which the device ends it by itself.",
            "env_var": True,
            "required": False,
        },
    )
    ordinary_executor: Optional[str] = field(  # noqa: UP045 -- Snakemake cannot read `str | None`
        default=None,
        metadata={
            "help": "Installed executor plugin that gets the jobs which name no device (kubernetes, cluster-generic, "
            "slurm, …), with its own usual options. Without it they run on this machine, in turn with what is "
            "measured here.",
            "env_var": True,
            "required": False,
        },
    )
    ordinary_python: Optional[str] = field(  # noqa: UP045
        default=None,
        metadata={
            "help": "The Python, with Snakemake, that those jobs are started by. Default: that of the other plugin; "
            "`python` where it expects no shared file system.",
            "env_var": True,
            "required": False,
        },
    )
    ordinary_settings: InitVar[Any] = None

    def __post_init__(self, ordinary_settings: Any) -> None:
        if not 1 <= self.stop_timeout <= 600:
            raise SidewinderError(f"--sidewinder-stop-timeout must be 1 to 600 seconds, not {self.stop_timeout}.")
        self.handover: Any = None
        if self.ordinary_executor is not None:
            # imported here: Snakemake imports every plugin at every start
            from snakemake_executor_plugin_sidewinder.handover import choose

            self.handover = choose(self.ordinary_executor, ordinary_settings)
        elif self.ordinary_python is not None or ordinary_settings is not None:
            raise SidewinderError(
                "--sidewinder-ordinary-python says how another executor plugin starts ordinary jobs, and none was "
                "named: add --sidewinder-ordinary-executor."
            )
