"""Sidewinder's logger plugin for Snakemake: the progress of a sweep, one line a point, and no error ever hidden.

Used as ``logger: [sidewinder]`` in a profile. It replaces Snakemake's console output of a real run; a dry run looks as
it always does. The log file below ``.snakemake/log`` keeps everything.
"""

from snakemake_logger_plugin_sidewinder.handler import LogHandler
from snakemake_logger_plugin_sidewinder.settings import LogHandlerSettings

__all__ = ["LogHandler", "LogHandlerSettings"]
