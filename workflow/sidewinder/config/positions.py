"""A position: the file and line where a person wrote a value. Config files are re-read for this alone.

The merged mapping is the only value; a position that does not hold the merged value (it came from the command line) is
not told, because a wrong line is worse than none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import yaml

Path = tuple[str | int, ...]

_MERGE = "tag:yaml.org,2002:merge"
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Position(NamedTuple):
    file: str
    line: int


class RepeatedKey(NamedTuple):
    """A key that stands twice in one mapping: YAML itself would silently keep the last one."""

    path: Path
    position: Position
    first_line: int


class Positions:
    """Where the values of one merged config were written."""

    def __init__(self, files: Sequence[str]) -> None:
        self._roots = [(file, root) for file in files if (root := _compose(file)) is not None]

    def find(self, path: Path, value: object = None) -> Position | None:
        """The place that says ``value`` at ``path``, or what comes closest to it; later files win, as in the merge."""
        best: tuple[int, Position] | None = None
        for file, root in reversed(self._roots):
            depth, line, node = _walk(root, path)
            if isinstance(node, yaml.ScalarNode) and depth == len(path) and not _says(node, value):
                return None
            if best is None or depth > best[0]:
                best = depth, Position(file, line)
            if depth == len(path) or not isinstance(node, yaml.MappingNode):
                break  # an earlier file is hidden here: lists and scalars replace each other
        return best[1] if best else None

    def repeated_keys(self) -> Iterator[RepeatedKey]:
        for file, root in self._roots:
            yield from _repeated(file, root, (), set())


def _compose(file: str) -> yaml.Node | None:
    try:
        with open(file, encoding="utf-8-sig") as stream:
            found: yaml.Node | None = yaml.compose(stream, Loader=_LOADER)
    except (OSError, ValueError, yaml.YAMLError):
        return None  # it was read once already; not finding it again costs line numbers only
    return found


def _pairs(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Own keys first, then those of ``<<`` merges."""
    merged: list[yaml.Node] = []
    for key, value in node.value:
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
        else:
            yield key, value
    for other in merged:
        if isinstance(other, yaml.MappingNode):
            yield from _pairs(other)


def _walk(root: yaml.Node, path: Path) -> tuple[int, int, yaml.Node]:
    node, line = root, root.start_mark.line + 1
    for depth, part in enumerate(path):
        if isinstance(node, yaml.MappingNode):
            for key, value in _pairs(node):
                if isinstance(key, yaml.ScalarNode) and key.value == str(part):
                    node, line = value, key.start_mark.line + 1
                    break
            else:
                return depth, line, node
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
        else:
            return depth, line, node
    return len(path), line, node


def _says(node: yaml.ScalarNode, value: object) -> bool:
    if isinstance(value, str) and node.value == value:
        return True
    try:
        return bool(yaml.safe_load(node.value) == value or (node.value in (".nan", "NaN") and value != value))
    except (ValueError, yaml.YAMLError):
        return False


def _repeated(file: str, node: yaml.Node, path: Path, seen: set[int]) -> Iterator[RepeatedKey]:
    if id(node) in seen:  # an alias, or a node that contains itself
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                yield RepeatedKey((*path, key.value), Position(file, line), lines[key.value])
            lines[key.value] = line
            yield from _repeated(file, value, (*path, key.value), seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(file, item, (*path, index), seen)
