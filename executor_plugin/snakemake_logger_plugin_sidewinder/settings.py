"""The settings of the progress display, as Snakemake turns them into options (``--logger-sidewinder-…``).

No ``from __future__ import annotations`` here: Snakemake's plugin interface calls the annotations.
"""

from dataclasses import dataclass, field

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_logger_plugins.settings import LogHandlerSettingsBase

STYLES = ("auto", "live", "plain")


@dataclass
class LogHandlerSettings(LogHandlerSettingsBase):
    style: str = field(
        default="auto",
        metadata={
            "help": "live (a board of the devices below the lines), plain (lines only), or auto: live on a terminal",
            "env_var": True,
            "required": False,
            "choices": list(STYLES),
        },
    )
    board_every_s: int = field(
        default=60,
        metadata={
            "help": "plain style: seconds between two lines that sum up every device (0: none)",
            "env_var": True,
            "required": False,
        },
    )

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise WorkflowError(f"--logger-sidewinder-style must be one of {', '.join(STYLES)}, not {self.style!r}.")
        if self.board_every_s < 0:
            raise WorkflowError("--logger-sidewinder-board-every-s must not be negative.")
