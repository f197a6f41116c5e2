"""A problem: one thing that is wrong with a config, told with file, line, key, value and rule.

Problems are collected, so that a person sees all of them at once, and nothing runs while there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from sidewinder.errors import ConfigError, ConfigErrors

from .positions import Path, Position, Positions
from .schema import known_keys

MAX_TOLD: Final = 50
_SHOWN_CHARS: Final = 80


class Problems:
    """The problems of one config, in the order they were found; the same one is told once."""

    def __init__(self, config: Mapping[str, Any], positions: Positions) -> None:
        self._config, self._positions = config, positions
        self._found: dict[str, ConfigError] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self, rule: str, path: Path = (), *, value: object = None, hint: str | None = None, at: Position | None = None
    ) -> None:
        """``path`` leads through the merged config; ``at`` is a better place than that (a line of a table)."""
        path, raw = as_written(self._config, path)
        place = at or self._positions.find(path, raw)
        error = ConfigError(
            rule,
            key=key_text(path) or None,
            value=_shown(raw if value is None else value),
            file=place.file if place else None,
            line=place.line if place else None,
            hint=hint,
        )
        self._found.setdefault(str(error), error)

    def add_unknown_key(self, path: Path, known: Iterable[str], *, hint: str | None = None) -> None:
        self.add("no such key", path, hint=hint or did_you_mean(str(path[-1]), known))

    def add_invalid(self, error: ValidationError, path: Path, model: type[BaseModel]) -> None:
        """What pydantic says of the value at ``path``, which should have become a ``model``."""
        for found in error.errors(include_url=False, include_context=False):
            loc = tuple(part for part in found["loc"] if part != "[key]")
            if found["type"] == "extra_forbidden":
                self.add_unknown_key((*path, *loc), known_keys(model, loc))
            elif found["type"] == "missing":
                self.add(f"{loc[-1]!r} is required here", (*path, *loc[:-1]))
            elif found["type"] in ("model_type", "dict_type"):
                self.add("must be a mapping (`key: value`)", (*path, *loc))
            else:
                self.add(found["msg"].replace("Input should be", "must be"), (*path, *loc))

    def raise_any(self) -> None:
        problems = list(self._found.values())
        if len(problems) == 1:
            raise problems[0]
        if len(problems) > MAX_TOLD:
            more = ConfigError(f"and {len(problems) - MAX_TOLD} more problems of this config")
            problems = [*problems[:MAX_TOLD], more]
        if problems:
            raise ConfigErrors(problems)


def as_written(config: Any, path: Path) -> tuple[Path, Any]:
    """``path`` as far as the config goes, and what stands there: ``threads: x`` is no ``threads[0]``."""
    node, kept = config, list[str | int]()
    for part in path:
        if isinstance(node, Mapping) and isinstance(part, str):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        else:
            break
        kept.append(part)
    return tuple(kept), node


def key_text(path: Path) -> str:
    """``matrix[2].threads``"""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def path_of(key: str) -> Path:
    """The reverse of ``key_text``."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", key) if part)


def did_you_mean(text: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known word, or all of them where none is near."""
    words = sorted(map(str, known))
    near = get_close_matches(text, words, n=3, cutoff=0.6) or get_close_matches(text.lower(), words, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(map(repr, near)) + "?"
    shown = ", ".join(words[:30]) + (", ..." if len(words) > 30 else "")
    return f"known here: {shown}" if words else None


def _shown(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= _SHOWN_CHARS else value[:_SHOWN_CHARS] + "…"
    return value if isinstance(value, (int, float)) else None
