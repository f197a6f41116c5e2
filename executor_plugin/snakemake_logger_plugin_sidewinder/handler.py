"""The handler: decides for each of Snakemake's log records whether a person sees it, and in what form.

A dry run is Snakemake's own listing, untouched. In a real run the chatter about points is replaced by one line a
point; jobs of a person's own rules keep their block; everything from WARNING up is always printed, whatever
``--quiet`` says.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_sidewinder.board import Board, Line
from snakemake_logger_plugin_sidewinder.screen import LiveScreen, PlainScreen, Screen
from snakemake_logger_plugin_sidewinder.settings import LogHandlerSettings

# Said per job or per round by Snakemake; the board says it per point and device.
_CHATTER = {
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
    LogEvent.PROGRESS,
    LogEvent.RESOURCES_INFO,
    LogEvent.RUN_INFO,
    LogEvent.WORKFLOW_STARTED,
    LogEvent.SHELLCMD,
    LogEvent.RULEGRAPH,
}
_CHATTER_TEXT = (
    "Building DAG of jobs",
    "Using shell:",
    "Provided remote nodes",
    "Select jobs to execute",
    "Execute ",
    "Complete log",
    "host: ",
    "Assuming unrestricted shared filesystem",
    "You are running snakemake in",
    "Elapsed time",
)


class LogHandler(LogHandlerBase):
    def __post_init__(self) -> None:
        self.board = Board()
        self._fallback: logging.Handler | None = None
        self._screen: Screen | None = None
        self._settings = self.settings if isinstance(self.settings, LogHandlerSettings) else LogHandlerSettings()
        if self.common_settings.dryrun:
            self._fallback = self._snakemake_console()

    # -- what Snakemake asks ----------------------------------------------------------------------------------------

    @property
    def writes_to_stream(self) -> bool:
        return True

    @property
    def writes_to_file(self) -> bool:
        return False

    @property
    def has_filter(self) -> bool:
        return True

    @property
    def has_formatter(self) -> bool:
        return True

    @property
    def needs_rulegraph(self) -> bool:
        return False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._fallback is not None:
                # filters of a handler are applied by `handle`, which also takes its lock
                self._fallback.handle(record)
                return
            self._show(record)
        except BrokenPipeError:
            pass  # the reader of our output is gone; the sweep goes on (design.md §2, promise 12)
        except Exception:  # noqa: BLE001 - a display must never end a run; logging's own way to say so
            self.handleError(record)

    def close(self) -> None:
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.close()
            for line in self.board.closing(time.monotonic()):
                screen.print(line)
        super().close()

    # -- routing ----------------------------------------------------------------------------------------------------

    def _show(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event == "sidewinder":
            self._show_ours(record)
        elif record.levelno >= logging.WARNING or event in (LogEvent.JOB_ERROR, LogEvent.GROUP_ERROR, LogEvent.ERROR):
            # never behind --quiet: an error that nobody sees is the one thing this program must not have
            level = "error" if record.levelno >= logging.ERROR else "warning"
            self._print(self._formatter().format(record), level)
        elif event in _CHATTER or self._is_quiet() or record.levelno < logging.INFO:
            if record.levelno < logging.INFO and self.common_settings.verbose:
                self._print(self._formatter().format(record))
        elif event == LogEvent.JOB_INFO:
            self._show_job(record)
        else:
            text = self._formatter().format(record).strip()
            if text and text != "None" and not text.startswith(_CHATTER_TEXT):
                self._print(text)

    def _show_ours(self, record: logging.LogRecord) -> None:
        for line in self.board.handle(record.__dict__, time.monotonic()):
            if line.level in ("warning", "error") or not self._is_quiet():
                self._print(line.text, line.level)
        if not self._is_quiet():
            self._open_screen().refresh()

    def _show_job(self, record: logging.LogRecord) -> None:
        """One line for a job of an ordinary rule; points tell of themselves."""
        fields: dict[str, Any] = record.__dict__
        if "device" in (fields.get("resources") or {}) or fields.get("rule_name") == "all":
            return
        outputs = ", ".join(str(one) for one in fields.get("output") or []) or "no output"
        self._print(f"rule {fields.get('rule_name')}: {outputs if len(outputs) < 100 else outputs[:99] + '…'}")

    # -- screens ----------------------------------------------------------------------------------------------------

    def _print(self, text: str, level: str = "info") -> None:
        self._open_screen().print(Line(text, level))

    def _open_screen(self) -> Screen:
        if self._screen is None:
            stream = sys.stdout if self.common_settings.stdout else sys.stderr
            live = self._settings.style == "live" or (self._settings.style == "auto" and stream.isatty())
            if live and not self._is_quiet():
                self._screen = LiveScreen(self.board, stream)
            else:
                self._screen = PlainScreen(self.board, stream, float(self._settings.board_every_s))
        return self._screen

    def _is_quiet(self) -> bool:
        return any(str(getattr(one, "value", one)) in ("all", "1") for one in self.common_settings.quiet or ())

    def _formatter(self) -> logging.Formatter:
        if self.formatter is None:
            from snakemake.logging import DefaultFormatter

            formatter = DefaultFormatter(set(self.common_settings.quiet or ()), self.common_settings.show_failed_logs)
            self.setFormatter(formatter)
            return formatter  # type: ignore[no-any-return]
        return self.formatter

    def _snakemake_console(self) -> logging.Handler:
        """Snakemake's own console, as it would be without us."""
        from snakemake.logging import ColorizingTextHandler, DefaultFilter

        common = self.common_settings
        handler: logging.Handler = ColorizingTextHandler(
            nocolor=common.nocolor, stream=sys.stdout if common.stdout else sys.stderr
        )
        handler.addFilter(
            DefaultFilter(common.quiet, common.debug_dag, common.verbose, common.dryrun, common.printshellcmds)
        )
        handler.setFormatter(self._formatter())
        return handler
