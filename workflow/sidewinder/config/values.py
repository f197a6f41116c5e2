"""A value: a number, boolean or text of a config, read by one stated rule (config/README.md, "Numbers").

* An integral number is an int: ``2.0`` is 2, ``-0.0`` is 0. NaN and infinities are refused.
* A text in exponent form (``1e-3``, which YAML 1.1 takes for text and YAML 1.2 for a number) is a number where a number
  is declared, and in parameters. No other text is.
* A cell of a table follows YAML 1.2: numbers, ``true``/``false`` in any case, else text; a blank is no value at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

from sidewinder import ids
from sidewinder.errors import ConfigError

from .positions import Path

Scalar = str | int | float | bool
Complain = Callable[[str, Path], None]

_EXPONENT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+")
_DECIMAL: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WHOLE: Final = re.compile(r"[-+]?[0-9]+")
_BASED: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NO_NUMBER: Final = re.compile(r"[-+]?\.?(nan|inf|infinity)", re.IGNORECASE)
_MAX_DIGITS: Final = 400  # more than any float has; Python itself refuses to print ints of over 4300


def rule(text: str) -> PydanticCustomError:
    """An error whose message is exactly ``text``."""
    return PydanticCustomError("rule", text)


def clean(value: Any, complain: Complain, path: Path = (), inside: tuple[int, ...] = ()) -> Any:
    """A copy of a whole config in plain dicts and lists, numbers in their one spelling; told what can be no value."""
    if isinstance(value, (Mapping, list, tuple)):
        if id(value) in inside:
            complain("contains itself (a YAML alias to its own parent)", path)
            return None
        inside = (*inside, id(value))
    if isinstance(value, Mapping):
        found = {}
        for key, item in value.items():
            if isinstance(key, str):
                found[key] = clean(item, complain, (*path, key), inside)
            else:
                complain(f"a name must be text: write {str(key)!r} in quotes (YAML read it as {key!r})", path)
        return found
    if isinstance(value, (list, tuple)):
        return [clean(item, complain, (*path, index), inside) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool):
        return value
    try:
        return _scalar(value)
    except ConfigError as error:
        complain(error.rule, path)
        return None


def _scalar(value: Any) -> Scalar:
    if isinstance(value, str):
        if not value.isascii():
            ids.canonical(value)
        return value
    if isinstance(value, float):
        return ids.number(value)
    if isinstance(value, int):
        if abs(value) >= 10**_MAX_DIGITS:
            raise ConfigError("too large for a number")
        return value
    raise ConfigError(f"YAML read this as a {type(value).__name__}: write it in quotes to keep it as text")


def number(value: Any) -> int | float:
    """A declared number. Raises the rule that ``value`` breaks."""
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = _finite(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise rule(_not_a("number", value))
    return value


def whole(value: Any) -> int:
    found = number(value) if not isinstance(value, str) or _EXPONENT.fullmatch(value) else value
    if not isinstance(found, int):
        raise rule(_not_a("whole number", value))
    return found


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise rule(_not_a("text", value) + ": write it in quotes")
    if not value:
        raise rule("must not be empty")
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise rule(_not_a("true or false", value))
    return value


def parameter(value: Any) -> Scalar | None:
    """A value of a free axis; None: the parameter is absent."""
    if isinstance(value, (dict, list)):
        raise rule("a parameter's value is text, a number or a boolean; structures go into `extra`")
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        return _finite(value)
    return value  # type: ignore[no-any-return]


def cell(value: str) -> Scalar | None:
    """A cell of a table under a parameter's column. Raises ``ConfigError``."""
    value = value.strip()
    if not value:
        return None
    lowered = value.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if _NO_NUMBER.fullmatch(value):
        raise ConfigError("NaN and infinities are no values to measure at; leave the cell blank for no value")
    if len(value) <= _MAX_DIGITS:
        if _WHOLE.fullmatch(value):
            return int(value)
        if _BASED.fullmatch(value):
            return int(value, 0)
        if _DECIMAL.fullmatch(value):
            return ids.number(float(value))
    return value


def _finite(value: str) -> int | float:
    try:
        return ids.number(float(value))
    except ConfigError:
        raise rule("too large for a number") from None


_KINDS: Final = {bool: "a boolean", int: "a number", float: "a number", str: "text", dict: "a mapping", list: "a list"}


def _not_a(wanted: str, value: object) -> str:
    found = _KINDS.get(type(value), "nothing" if value is None else type(value).__name__)
    if wanted == "whole number" and isinstance(value, float):
        found = "a fraction"
    article = "" if wanted in ("text", "true or false") else "a "
    return f"must be {article}{wanted}, this is {found}"
