"""A screen: where lines go. Live on a terminal (rich keeps a board below the lines), plain everywhere else."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TextIO

from snakemake_logger_plugin_sidewinder.board import Board, Line, duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

STYLES = {"good": "green", "warning": "yellow", "error": "bold red", "info": ""}


class Screen(Protocol):
    def print(self, line: Line) -> None: ...

    def refresh(self) -> None:
        """The board changed."""

    def close(self) -> None: ...


class PlainScreen:
    """Lines only: for log files, CI and pipes. Every ``board_every_s`` one line sums up each device."""

    def __init__(self, board: Board, stream: TextIO, board_every_s: float) -> None:
        self._board, self._stream, self._every_s = board, stream, board_every_s
        self._next_s = time.monotonic() + board_every_s

    def print(self, line: Line) -> None:
        self._stream.write(line.text + "\n")
        self._stream.flush()

    def refresh(self) -> None:
        now_s = time.monotonic()
        if self._every_s and now_s >= self._next_s:
            self._next_s = now_s + self._every_s
            for text in self._board.device_lines(now_s):
                self.print(Line("  " + text))

    def close(self) -> None:
        self._stream.flush()


class LiveScreen:
    """A terminal: lines scroll above, the board of the devices stays below and goes away at the end."""

    def __init__(self, board: Board, stream: TextIO) -> None:
        from rich.console import Console

        self._board = board
        self._console: Console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None

    def print(self, line: Line) -> None:
        self._console.print(line.text, style=STYLES.get(line.level, ""), markup=False)

    def refresh(self) -> None:
        if self._live is None and self._board.rows:
            from rich.live import Live

            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=2, transient=True)
            self._live.start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        from rich.table import Table

        now_s = time.monotonic()
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        # a hole is no failed result: its column is there as soon as there is one
        holes = any(row.holes for row in self._board.rows.values())
        titles = ("device", "running", "queued", "done", "failed", *(["holes"] if holes else []), "left", "now")
        for title in titles:
            table.add_column(title, justify="left" if title in ("device", "now") else "right")
        for device, row in self._board.rows.items():
            eta_s = row.eta_s(now_s)
            running = [f"{label} ({duration(now_s - since_s)})" for label, since_s in row.running.values()]
            running[:0] = [one for one in (row.waits_for, row.bringing) if one]
            table.add_row(
                f"{device} {row.ails}".rstrip(),
                str(len(row.running)),
                str(row.queued),
                str(row.done_before + row.ok),
                str(row.failed),
                *([str(row.holes)] if holes else []),
                f"~{duration(eta_s)}" if eta_s is not None else "",
                ", ".join(running[:2]) + (" …" if len(running) > 2 else ""),
                style={"DOWN": "red", "LINK LOST": "yellow"}.get(row.ails, ""),
            )
        return table
