"""The settings: what a profile or the command line may say about the executor beyond the lab's config."""

# No `from __future__ import annotations` here: Snakemake calls each annotation to convert what was written.
from dataclasses import dataclass, field

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]  # the interface has no types
    """Checked whenever Snakemake starts, also for a dry run."""

    stop_timeout: int = field(
        default=20,
        metadata={
            "help": "Seconds that stopping may take (Ctrl-C, the end of a run): what does not answer by then is left "
            "to its lease, after which the device ends it by itself.",
            "env_var": True,
            "required": False,
        },
    )

    def __post_init__(self) -> None:
        if not 1 <= self.stop_timeout <= 600:
            raise WorkflowError(f"--sidewinder-stop-timeout must be 1 to 600 seconds, not {self.stop_timeout}.")
