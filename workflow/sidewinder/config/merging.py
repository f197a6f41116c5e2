"""Merging: several config files made one mapping, as Snakemake does it (mappings merge, everything else replaces)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from sidewinder.errors import ConfigError


def read_file(path: str) -> dict[str, Any]:
    """The mapping in one YAML or JSON file."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except OSError as error:
        raise ConfigError(f"the config cannot be read: {error.strerror or error}", value=path) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config is not UTF-8 text (byte {error.start})", file=path) from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # no JSON; YAML it is
        found = _read_yaml(path, text)
    if not isinstance(found, dict):
        raise ConfigError("a config must be a mapping (`key: value`) at the top level", file=path)
    return found


def _read_yaml(path: str, text: str) -> Any:
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # a safe loader, in C
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError(f"this is no valid YAML: {error.problem or error.context}", file=path, line=line) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:  # ValueError: 2024-13-45, or 5000 digits
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"this is no valid YAML: {first}", file=path) from None
    except RecursionError:
        raise ConfigError("this YAML is nested too deeply", file=path) from None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(below)
    for key, value in above.items():
        lower = found.get(key)
        found[key] = merge(lower, value) if isinstance(lower, Mapping) and isinstance(value, Mapping) else value
    return found


def read_files(paths: Sequence[str], overrides: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    try:
        for path in paths:
            found = merge(found, read_file(path))
        return merge(found, overrides)
    except RecursionError:
        raise ConfigError("two configs that contain themselves cannot be merged") from None
