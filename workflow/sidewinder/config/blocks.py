"""A block: one entry of the matrix, merged over the defaults and checked; its axes are lists, not yet multiplied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from sidewinder.errors import ConfigError

from . import tables, values
from .positions import Path, Position
from .problems import Problems, did_you_mean
from .schema import BlockSection, known_keys

# M-12: key of a block → field of Point; the order in which axes multiply, outermost first
AXES: Final[Mapping[str, str]] = {
    "devices": "device",
    "models": "model",
    "modes": "mode",
    "threads": "threads",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "context_tokens": "context_tokens",
    "batch_sizes": "batch_size",
    "governors": "governor",
    "freqs_khz": "freq_khz",
    "kv_quantizations": "kv_quantization",
}
ALIASES: Final[Mapping[str, str]] = {field: key for key, field in AXES.items() if field != key}
SETTINGS: Final = ("backend", "repetitions", "warmup", "flash_attention", "sample_power", "sample_hz", "priority")
COLUMNS: Final[Mapping[str, str]] = {**{key: key for key in (*AXES, *SETTINGS)}, **ALIASES}
TEXT_COLUMNS: Final = frozenset({"devices", "models", "modes", "governors", "kv_quantizations", "backend"})

Key = tuple[bool, values.Scalar | None]


class Exclusion(NamedTuple):
    """A combination that is left out: every named axis or parameter has one of the given values."""

    path: Path
    axes: Mapping[str, frozenset[Key]]
    parameters: Mapping[str, frozenset[Key]]


class Variant(NamedTuple):
    """A block as one row of its table has it; without a table there is exactly one."""

    axes: Mapping[str, Sequence[Any]]  # by key of AXES
    settings: Mapping[str, Any]  # by name of SETTINGS
    parameters: Mapping[str, Sequence[values.Scalar | None]]
    position: Position | None


@dataclass(frozen=True)
class Block:
    path: Path
    origins: Mapping[str, Path]  # where each key was written: in the block itself or in the defaults
    section: BlockSection
    variants: Sequence[Variant]
    exclusions: Sequence[Exclusion]

    def path_of(self, key: str) -> Path:
        """Where ``key`` (a key of a block or a field of a point) was written; the block itself if nowhere."""
        return self.origins.get(ALIASES.get(key, key), self.path)

    def is_own(self, key: str) -> bool:
        return self.path_of(key)[0] == "matrix"


def same(value: values.Scalar | None) -> Key:
    """Makes 1 and true two values, which Python takes for equal."""
    return isinstance(value, bool), value


def read_blocks(
    config: Mapping[str, Any], base_dir: str, config_files: Sequence[str], problems: Problems
) -> list[Block]:
    matrix, defaults = config.get("matrix"), config.get("defaults") or {}
    if not matrix or not isinstance(matrix, (list, Mapping)):
        problems.add("there is nothing to run: a list of blocks such as `- {devices: [local], ...}`", ("matrix",))
        return []
    if not isinstance(defaults, Mapping):
        problems.add("must be a mapping (`key: value`)", ("defaults",))
        return []
    base, base_origins = _normal(defaults, ("defaults",), problems)
    entries: list[tuple[Path, Any]] = (
        [(("matrix",), matrix)]
        if isinstance(matrix, Mapping)
        else [(("matrix", index), block) for index, block in enumerate(matrix)]
    )
    blocks = []
    for path, raw in entries:
        if not isinstance(raw, Mapping):
            problems.add("a block must be a mapping (`key: value`)", path)
            continue
        own, own_origins = _normal(raw, path, problems)
        block = _read_block({**base, **own}, path, {**base_origins, **own_origins}, base_dir, config_files, problems)
        if block is not None:
            blocks.append(block)
    return blocks


def _normal(raw: Mapping[str, Any], path: Path, problems: Problems) -> tuple[dict[str, Any], dict[str, Path]]:
    """Keys by their plural names, and where each was written."""
    found: dict[str, Any] = {}
    origins: dict[str, Path] = {}
    for key, value in raw.items():
        name = ALIASES.get(key, key)
        if name in found:
            problems.add(f"is the same as {origins[name][-1]!r}: give one of them", (*path, key))
        found[name] = value
        origins[name] = (*path, key)
    return found, origins


def _read_block(
    merged: dict[str, Any],
    path: Path,
    origins: dict[str, Path],
    base_dir: str,
    config_files: Sequence[str],
    problems: Problems,
) -> Block | None:
    before = len(problems)
    unknown = [key for key in merged if key not in _KNOWN]
    for key in unknown:
        problems.add_unknown_key(origins[key], [*_KNOWN, *ALIASES])
        del merged[key]
    section = _check(merged, path, origins, problems)
    if section is None:
        return None
    for name in section.parameters or {}:
        if name in COLUMNS:
            problems.add(
                "is an axis or a setting, not a parameter: write it beside `parameters`",
                _below(path, origins, "parameters", name),
            )
    if section.command is not None and section.backend != "command":
        problems.add("a command needs `backend: command`", origins["command"])
    if section.stage and section.command is None:
        problems.add("names files for the arguments of a `command`, which this block lacks", origins["stage"])
    table = _table(section, path, origins, base_dir, config_files, problems)
    if len(problems) > before:
        return None
    names = [*(section.parameters or {}), *(table.columns if table else ())]
    exclusions = list(_exclusions(section, origins, names, problems))
    variants = list(_variants(section, table, origins, problems))
    _check_staged(section, variants, origins, problems)
    if len(problems) > before:
        return None
    return Block(path, origins, section, variants, exclusions)


def _check_staged(
    section: BlockSection, variants: Sequence[Variant], origins: Mapping[str, Path], problems: Problems
) -> None:
    """A file that no argument names would be brought for nothing, and the argument would name another file."""
    if not section.stage:
        return
    used = {*(section.command or ())}
    used |= {value for variant in variants for values_ in variant.parameters.values() for value in values_ if value}
    for index, file in enumerate(section.stage):
        where: Path = (*origins["stage"], index)
        if file not in used:
            rule = "no argument of `command` and no parameter is just this file"
            problems.add(rule, where, value=file, hint="write it there as it stands here, as an argument of its own")
        elif section.stage.index(file) != index:
            problems.add("is named twice", where, value=file)


_KNOWN: Final = tuple(known_keys(BlockSection))


def _below(path: Path, origins: Mapping[str, Path], *loc: str | int) -> Path:
    return (*origins.get(str(loc[0]), (*path, loc[0])), *loc[1:])


def _check(
    merged: Mapping[str, Any], path: Path, origins: Mapping[str, Path], problems: Problems
) -> BlockSection | None:
    try:
        return BlockSection.model_validate(merged)
    except ValidationError as error:
        for found in error.errors(include_url=False, include_context=False):
            loc = tuple(part for part in found["loc"] if part != "[key]")
            where = _below(path, origins, *loc)
            if found["type"] == "extra_forbidden":
                problems.add_unknown_key(where, known_keys(BlockSection, loc))
            else:
                problems.add(found["msg"], where)
        return None


def _table(
    section: BlockSection,
    path: Path,
    origins: Mapping[str, Path],
    base_dir: str,
    config_files: Sequence[str],
    problems: Problems,
) -> tables.Table | None:
    if section.table is None:
        return None
    where = origins["from"]
    if not section.table.endswith((".csv", ".tsv")):
        problems.add("a table is a .csv or .tsv file", where)
        return None
    try:
        table = tables.read(tables.find(section.table, base_dir, config_files), COLUMNS, TEXT_COLUMNS)
    except ConfigError as error:
        at = Position(error.file, error.line or 1) if error.file else None
        problems.add(
            error.rule if error.key is None else f"column {error.key!r}: {error.rule}", where, value=error.value, at=at
        )
        return None
    twice = [name for name in table.columns if origins.get(name, where)[0] == "matrix" and name in origins]
    twice += [name for name in table.columns if name in (section.parameters or {})]
    for name in twice:
        problems.add(f"{name!r} is a column of {table.path} and given here too: give one of them", path)
    return table


def _variants(
    section: BlockSection, table: tables.Table | None, origins: Mapping[str, Path], problems: Problems
) -> Iterator[Variant]:
    axes = {key: getattr(section, key) for key in AXES}
    settings = {name: getattr(section, name) for name in SETTINGS}
    parameters = section.parameters or {}
    if table is None:
        yield Variant(axes, settings, parameters, None)
        return
    checked: dict[tuple[str, Key], Any] = {}  # a table of many rows has few distinct cells
    for row in table.rows:
        own_axes, own_settings = dict(axes), dict(settings)
        for column, value in row.settings.items():
            cell = column, same(value)
            if cell not in checked:
                try:
                    checked[cell] = getattr(BlockSection.model_validate({column: value}), column)
                except ValidationError as error:
                    rule = error.errors(include_url=False, include_context=False)[0]["msg"]
                    problems.add(f"column {column!r}: {rule}", origins["from"], value=value, at=row.position)
                    checked[cell] = [None]
            (own_axes if column in AXES else own_settings)[column] = checked[cell]
        own_parameters = {name: (value,) for name, value in row.parameters.items()}
        yield Variant(own_axes, own_settings, {**parameters, **own_parameters}, row.position)


def _exclusions(
    section: BlockSection, origins: Mapping[str, Path], parameters: Sequence[str], problems: Problems
) -> Iterator[Exclusion]:
    for index, raw in enumerate(section.exclude or ()):
        path: Path = (*origins["exclude"], index)
        axes: dict[str, frozenset[Key]] = {}
        own: dict[str, frozenset[Key]] = {}
        for name, value in raw.items():
            key = ALIASES.get(name, name)
            if key not in AXES and name not in parameters:
                hint = did_you_mean(name, [*AXES, *ALIASES, *parameters])
                problems.add("no axis and no parameter of this block is called this", (*path, name), hint=hint)
                continue
            try:
                if key in AXES:
                    found = getattr(BlockSection.model_validate({key: value}), key)
                    axes[key] = frozenset(map(same, found))
                else:
                    listed = value if isinstance(value, list) else [value]
                    own[name] = frozenset(same(values.parameter(item)) for item in listed)
            except ValidationError as error:
                problems.add(error.errors(include_url=False)[0]["msg"], (*path, name))
            except PydanticCustomError as error:
                problems.add(error.message(), (*path, name))
        if not raw:
            problems.add("an empty exclusion would leave everything out", path)
        yield Exclusion(path, axes, own)
