"""A table: a CSV or TSV file whose rows are points (`from: points.csv`).

Columns named like an axis or a setting are that; all others are parameters. A blank cell is no value at all.
"""

from __future__ import annotations

import csv
import os
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sidewinder.errors import ConfigError

from . import values
from .positions import Position


class Row(NamedTuple):
    """One line of a table: what it sets of a block, and its parameters."""

    position: Position
    settings: Mapping[str, Any]
    parameters: Mapping[str, values.Scalar]


class Table(NamedTuple):
    path: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def find(name: str, base_dir: str, config_files: Sequence[str]) -> str:
    """The table below the working folder, else beside a config file; where neither exists, the first place."""
    places = [os.path.join(base_dir, name), *(os.path.join(os.path.dirname(file), name) for file in config_files)]
    return next((place for place in places if os.path.isfile(place)), places[0])


def read(path: str, keys: Mapping[str, str], texts: frozenset[str]) -> Table:
    """``keys``: column name → key of a block; ``texts``: keys whose cells stay text. Raises ``ConfigError``."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter="\t" if path.endswith(".tsv") else ",", strict=True)
            try:
                return _read(path, reader, keys, texts)
            except csv.Error as error:
                raise ConfigError(f"the table is broken: {error}", file=path, line=reader.line_num) from None
    except OSError as error:
        raise ConfigError(f"the table cannot be read: {error.strerror or error}", value=path) from None
    except UnicodeDecodeError:
        raise ConfigError("the table is not UTF-8 text", file=path) from None


def _read(path: str, reader: Any, keys: Mapping[str, str], texts: frozenset[str]) -> Table:
    header = [unicodedata.normalize("NFC", name.strip()) for name in next(reader, [])]
    columns = [keys.get(name, name) for name in header]
    for name, column in zip(header, columns, strict=True):
        if not name:
            raise ConfigError("every column needs a name in the first line", file=path, line=1)
        if columns.count(column) > 1:
            raise ConfigError("two columns mean the same", value=name, file=path, line=1)
    if not header:
        raise ConfigError("the table is empty: its first line must name the columns", file=path, line=1)
    rows = []
    for cells in reader:
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise ConfigError(f"this row has {len(cells)} cells, the header {len(header)}", file=path, line=line)
        settings: dict[str, Any] = {}
        parameters: dict[str, values.Scalar] = {}
        for name, column, cell in zip(header, columns, cells, strict=True):
            target = settings if name in keys else parameters
            try:
                value = (cell.strip() or None) if column in texts else values.cell(cell)
            except ConfigError as error:
                raise ConfigError(error.rule, key=name, value=cell, file=path, line=line) from None
            if value is not None:
                target[column] = value
        rows.append(Row(Position(path, line), settings, parameters))
    if not rows:
        raise ConfigError("the table has no rows", file=path)
    return Table(path, tuple(columns), tuple(rows))
