"""A kind of value: how what stands under one key is checked, and how JSON Schema describes it.

Each check raises the rule that was broken, in words; ``values`` says how numbers and texts are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Final

from pydantic import GetCoreSchemaHandler
from pydantic_core import core_schema

from . import values

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER: Final = re.compile(r"[^\W\d][\w.-]{0,62}")
_EXPERIMENT: Final = re.compile(r"[^\W_][^/\\\x00-\x1f\x7f]{0,99}")


def _at_least(read: Callable[[Any], Any], least: float | None, most: float | None = None) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        found = read(value)
        if least is not None and found < least:
            raise values.rule(f"must be {least} or more")
        if most is not None and found > most:
            raise values.rule(f"must be {most} or less")
        return found

    return check


def _above_zero(value: Any) -> Any:
    found = values.number(value)
    if found <= 0:
        raise values.rule("must be more than 0")
    return found


def _matching(pattern: re.Pattern[str], said: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        found = values.text(value)
        if not pattern.fullmatch(found):
            raise values.rule(said)
        return found

    return check


def _as_list(value: Any) -> list[Any]:
    """M-12: an axis is a list or one value; empty and null mean "not set"."""
    if isinstance(value, list):
        return value or [None]
    return [value]


def _distinct(found: list[Any]) -> list[Any]:
    counts: dict[tuple[bool, Any], int] = {}
    for value in found:
        key = isinstance(value, bool), value
        counts[key] = counts.get(key, 0) + 1
    twice = [f"{value!r} ({count} times)" for (_, value), count in counts.items() if count > 1]
    if twice:
        raise values.rule(
            f"the same value stands here more than once, each would be the same point: {', '.join(twice)}"
        )
    return found


def _env_value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise values.rule("an environment value is text: write it in quotes")
    if "\0" in value:
        raise values.rule("an environment value cannot hold a NUL byte")
    return value


def _argv(value: Any) -> list[str]:
    if not isinstance(value, list) or not value:
        raise values.rule("a command is a list of arguments, no shell is involved: [program, argument, ...]")
    for argument in value:
        if not isinstance(argument, str):
            # a YAML number has lost its spelling (010 is 8, 1.10 is 1.1): the program would not see what was written
            raise values.rule(f"an argument is text: write {argument!r} in quotes, as the program shall see it")
    return value


def _digest(value: Any) -> str:
    found = values.text(value).lower()
    if found.endswith(("…", "...")):
        return found  # a digest cut short for reading: config/entries.py warns and does not use it
    if not _SHA256.fullmatch(found):
        raise values.rule("must be 64 hex characters (as `sha256sum FILE` prints), or be left out")
    return found


def _flash(value: Any) -> bool | str:
    if value in (0, 1):
        return bool(value)
    if value == "auto":
        return "auto"
    raise values.rule("must be true, false or auto")


def _seconds_or_never(value: Any) -> float | str:
    return "never" if value == "never" else _at_least(values.number, 0)(value)


def _metrics(value: Any) -> Any:
    if value == "json":
        return value
    if not isinstance(value, dict):
        raise values.rule("must be `json`, or a mapping of names to regular expressions with one group each")
    for name, pattern in value.items():
        try:
            re.compile(values.text(pattern))
        except re.error as error:
            raise values.rule(f"the pattern of {name!r} is no regular expression: {error}") from None
    return value


def _strings(value: Any) -> Any:
    if isinstance(value, dict):
        raise values.rule("must be a list of texts")
    return value if isinstance(value, list) else [] if value is None else [value]


class Checked:
    """What stands under a key is what ``check`` makes of it."""

    def __init__(self, check: Callable[[Any], Any], **json_schema: Any) -> None:
        self.check, self.json_schema = check, json_schema

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        return self.json_schema


class Axis(Checked):
    """A list of distinct values, or one value; null means "not set"."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        item = core_schema.nullable_schema(core_schema.no_info_plain_validator_function(self.check))
        listed = core_schema.no_info_before_validator_function(_as_list, core_schema.list_schema(item))
        return core_schema.no_info_after_validator_function(_distinct, listed)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        value = {"anyOf": [self.json_schema, {"type": "null"}]}
        return {"anyOf": [self.json_schema, {"type": "null"}, {"type": "array", "items": value}]}


class Several(Checked):
    """A list of texts, or one text."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        items = core_schema.list_schema(core_schema.no_info_plain_validator_function(self.check))
        return core_schema.no_info_before_validator_function(_strings, items)

    def __get_pydantic_json_schema__(self, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        return {"anyOf": [self.json_schema, {"type": "array", "items": self.json_schema}]}


Text = Annotated[str, Checked(values.text, type="string", minLength=1)]
Flag = Annotated[bool, Checked(values.flag, type="boolean")]
Whole = Annotated[int, Checked(values.whole, type="integer")]
Positive = Annotated[int, Checked(_at_least(values.whole, 1), type="integer", minimum=1)]
Natural = Annotated[int, Checked(_at_least(values.whole, 0), type="integer", minimum=0)]
Port = Annotated[int, Checked(_at_least(values.whole, 1, 65535), type="integer", minimum=1, maximum=65535)]
Seconds = Annotated[float, Checked(_at_least(values.number, 0), type="number", minimum=0)]
SecondsOrNever = Annotated[
    float | str, Checked(_seconds_or_never, anyOf=[{"type": "number", "minimum": 0}, {"const": "never"}])
]
Window = Annotated[float, Checked(_at_least(values.number, 0.1), type="number", minimum=0.1)]
Rate = Annotated[float, Checked(_above_zero, type="number", exclusiveMinimum=0)]
Factor = Annotated[float, Checked(_at_least(values.number, 1), type="number", minimum=1)]
Share = Annotated[float, Checked(_at_least(values.number, 0, 1), type="number", minimum=0, maximum=1)]
Digest = Annotated[str, Checked(_digest, type="string", pattern="^[0-9a-fA-F]{64}$")]
FlashAttention = Annotated[bool | str, Checked(_flash, enum=[True, False, "auto"])]
Experiment = Annotated[
    str,
    Checked(
        _matching(_EXPERIMENT, "is part of a folder name: it starts with a letter or a digit and holds no slash"),
        type="string",
    ),
]
EnvName = Annotated[str, Checked(_matching(_ENV_NAME, "is no name of an environment variable"), type="string")]
EnvValue = Annotated[str, Checked(_env_value, type=["string", "integer"])]
ParameterName = Annotated[
    str,
    Checked(
        _matching(_PARAMETER, "a parameter's name starts with a letter and goes on with letters, digits and . _ -"),
        type="string",
    ),
]
Metrics = Annotated[
    str | dict[str, str],
    Checked(_metrics, anyOf=[{"const": "json"}, {"type": "object", "additionalProperties": {"type": "string"}}]),
]
Argv = Annotated[list[str], Checked(_argv, type="array", items={"type": "string"})]
Texts = Annotated[list[str], Several(values.text, type="string")]
EnvNames = Annotated[list[str], Several(_matching(_ENV_NAME, "is no name of an environment variable"), type="string")]

TextAxis = Annotated[list[str | None], Axis(values.text, type="string")]
PositiveAxis = Annotated[list[int | None], Axis(_at_least(values.whole, 1), type="integer", minimum=1)]
NaturalAxis = Annotated[list[int | None], Axis(_at_least(values.whole, 0), type="integer", minimum=0)]
ParameterAxis = Annotated[list[values.Scalar | None], Axis(values.parameter, type=["string", "number", "boolean"])]
