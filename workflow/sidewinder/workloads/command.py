"""Command: the workload that runs any program once and reads numbers by name from what it prints.

A point says ``command`` (an argv) and ``metrics``: ``{name: regex with one group}`` over stdout, or ``"json"``.

* There is no shell, ever. ``{threads}`` or any other axis or parameter is put into its own argument, so a value with
  blanks, quotes, ``$(…)`` or line ends arrives byte for byte (B03). ``{{threads}}`` stays as the text ``{threads}``;
  other braces (awk, JSON, ``find -exec``) are left alone. A parameter may be called ``n-gpu`` (B01).
* The program runs once per point: ``repetitions`` is for the program to use (``{repetitions}``), not for us. To see
  the spread between invocations, which is what comparisons rest on (docs/design.md §6), plan more points.
* ``extra``: ``timeout_s`` (3600), ``env``, ``cwd`` (a fresh empty folder). Placeholders work in all strings of them.
"""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from sidewinder.errors import ConfigError, ParseError
from sidewinder.model import (
    EMPTY,
    KNOB_AXES,
    WORKLOAD_AXES,
    Device,
    Found,
    Json,
    Measurement,
    Output,
    Point,
    RawResult,
    Task,
)

from .base import DeviceView

DEFAULT_TIMEOUT_S = 3600.0
_PLACEHOLDER = re.compile(r"\{\{([^\W\d][\w.-]*)\}\}|\{([^\W\d][\w.-]*)\}")
_EXTRA_KEYS = ("cwd", "env", "timeout_s")
_AXES = ("device", "mode", "model", "model_path", *WORKLOAD_AXES, *KNOB_AXES)


class Command:
    """Any program; see the module."""

    backend: ClassVar[str] = "command"
    modes: ClassVar[frozenset[str]] = frozenset({"throughput", "latency", "run"})

    def validate(self, point: Point) -> None:
        if not point.command:
            raise ConfigError("backend `command` needs an argv: [program, argument, ...]", key="command")
        # building it is the check: a placeholder nobody fills or a bad number is found before anything runs
        _arguments(point)
        _task_settings(point)
        _patterns(point.metrics)

    async def discover(self, view: DeviceView, settings: Mapping[str, Json]) -> Found:
        # What argv[0] is depends on the point; a missing program is a result of its own (`spawn_failed`).
        return Found()

    def build_task(self, point: Point, device: Device, found: Found) -> Task:
        self.validate(point)
        timeout_s, env, cwd = _task_settings(point)
        require = tuple(name for name in ("governor", "freq_khz") if getattr(point, name) is not None)
        prepare = {**point.prepare, **{name: getattr(point, name) for name in require}}
        return Task(
            argv=_arguments(point),
            env={**device.env, **env},
            cwd=cwd,
            timeout_s=timeout_s,
            prepare=prepare or EMPTY,
            require=require,
            sample_hz=point.sample_hz,
            sample_power=point.sample_power,
        )

    def parse(self, point: Point, task: Task, raw: RawResult) -> Measurement:
        workload = {"command": list(task.argv)}
        if raw.returncode != 0:
            return Measurement(ok=False, message=_why_it_failed(raw), workload=workload)
        metrics, samples, warnings = _read_metrics(point.metrics, raw.stdout)
        message = _objection(point.metrics, metrics)
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        return Measurement(
            ok=message is None,
            message=message,
            metrics=finite,
            workload=workload,
            backend={"name": "command", "binary": task.argv[0]},
            samples=samples,
            warnings=tuple(warnings),
        )

    def headline(self, metrics: Mapping[str, Json]) -> str:
        shown = [(name, value) for name, value in metrics.items() if isinstance(value, int | float)][:3]
        return ", ".join(f"{name} {value:.4g}" for name, value in shown)


# ---------------------------------------------------------------------------------------------------------------------
# argv


def _values(point: Point) -> dict[str, Json]:
    values = {name: getattr(point, name) for name in _AXES}
    values.update(point.parameters)
    return values


def _fill(text: str, values: Mapping[str, Json], key: str) -> str:
    """Put values into one string, in one pass: what a value holds is never looked at again."""

    def one(match: re.Match[str]) -> str:
        literal, name = match.groups()
        said = literal or name
        if said not in values and not said.isidentifier():
            return match[0]  # `{a-b}`: no parameter of this point, so somebody else's braces
        if literal is not None:
            return "{" + literal + "}"
        if name not in values:
            known = ", ".join(sorted(values))
            raise ConfigError(
                f"no axis and no parameter is called {name!r}",
                key=key,
                value=text,
                hint=f"known here: {known}; write {{{{{name}}}}} to pass the braces on as they are",
            )
        value = values[name]
        if value is None:
            raise ConfigError(f"{{{name}}} is used but this point sets no {name}", key=key, value=text)
        return _text(value)

    filled = _PLACEHOLDER.sub(one, text)
    if "\0" in filled:
        raise ConfigError("a NUL byte cannot be part of an argument", key=key, value=filled)
    try:
        filled.encode()
    except UnicodeEncodeError:
        raise ConfigError("not valid Unicode text (a lone surrogate)", key=key, value=filled) from None
    return filled


def _text(value: Json) -> str:
    """A value as an argument: text as it is, everything else as JSON writes it (``true``, ``1e-05``, ``[1,2]``)."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _arguments(point: Point) -> tuple[str, ...]:
    values = _values(point)
    argv = tuple(_fill(str(part), values, f"command[{i}]") for i, part in enumerate(point.command))
    if not argv[0]:
        raise ConfigError("the program's name is empty", key="command[0]", value=point.command[0])
    return argv


def _task_settings(point: Point) -> tuple[float, dict[str, str], str | None]:
    """``extra`` as (timeout_s, env, cwd)."""
    extra = point.extra
    for key in extra:
        if key not in _EXTRA_KEYS:
            raise ConfigError(f"backend `command` knows {', '.join(_EXTRA_KEYS)}", key=f"extra.{key}", value=extra[key])
    values = _values(point)
    timeout_s = extra.get("timeout_s", DEFAULT_TIMEOUT_S)
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < math.inf:
        raise ConfigError("must be a number of seconds above 0", key="extra.timeout_s", value=timeout_s)
    declared = extra.get("env", {})
    if not isinstance(declared, Mapping):
        raise ConfigError("must be a mapping of names to values", key="extra.env", value=declared)
    env: dict[str, str] = {}
    for name, value in declared.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError("not a name of an environment variable", key="extra.env", value=name)
        env[name] = _fill(_text(value), values, f"extra.env.{name}")
    cwd = extra.get("cwd")
    if cwd is not None and (not isinstance(cwd, str) or not cwd):
        raise ConfigError("must be a path on the device", key="extra.cwd", value=cwd)
    return float(timeout_s), env, None if cwd is None else _fill(cwd, values, "extra.cwd")


# ---------------------------------------------------------------------------------------------------------------------
# output


def _patterns(metrics: Json) -> dict[str, re.Pattern[str]]:
    """The declared metrics, compiled; empty for ``json`` and for none."""
    if metrics is None or metrics == "json":
        return {}
    if not isinstance(metrics, Mapping):
        raise ConfigError("must be `json` or a mapping of names to regular expressions", key="metrics", value=metrics)
    patterns = {}
    for name, source in metrics.items():
        key = f"metrics.{name}"
        if not isinstance(source, str):
            raise ConfigError("must be a regular expression with one group", key=key, value=source)
        try:
            pattern = re.compile(source, re.MULTILINE)
        except re.error as error:
            raise ConfigError(f"not a regular expression: {error}", key=key, value=source) from None
        if pattern.groups != 1:
            raise ConfigError(
                f"must have exactly one group (...), has {pattern.groups}",
                key=key,
                value=source,
                hint="use (?:...) for a group that is not the number",
            )
        patterns[str(name)] = pattern
    return patterns


def _read_metrics(
    declared: Json, stdout: Output
) -> tuple[dict[str, int | float], dict[str, list[int | float]], list[str]]:
    """(metrics, samples, warnings). Raises ``ParseError`` where something is there but is not what it should be."""
    if declared is None:
        return {}, {}, []
    if declared == "json":
        metrics: dict[str, int | float] = {}
        samples: dict[str, list[int | float]] = {}
        for name, value in _flatten("", _json_object(stdout)):
            if isinstance(value, list):
                samples[name] = value
            else:
                metrics[name] = value
        return metrics, samples, []
    found = {}
    for name, pattern in _patterns(declared).items():
        group = _last_match(pattern, stdout)
        if group is not None:
            found[name] = _number(name, group)
    dropped = stdout.dropped_bytes
    warnings = [f"{dropped} bytes in the middle of stdout were not kept and not searched"] if found and dropped else []
    return found, {}, warnings


def _last_match(pattern: re.Pattern[str], stdout: Output) -> str | None:
    """The group's text at its last match: programs that print as they go print the final figure last."""
    for text in _searchable(stdout):
        last = None
        for match in pattern.finditer(text):
            if match.group(1) is not None:
                last = match.group(1)
        if last is not None:
            return last
    return None


def _searchable(stdout: Output) -> list[str]:
    """The kept text, latest part first. Where the middle was dropped, the two torn lines are left out: a torn line
    may hold the first digits of a number."""
    whole = stdout.whole()
    if whole is not None:
        return [_decode(whole)]
    head = stdout.head[: stdout.head.rfind(b"\n") + 1]
    tail_start = stdout.tail.find(b"\n") + 1
    tail = stdout.tail[tail_start:] if tail_start else b""
    return [_decode(tail), _decode(head)]


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _number(name: str, text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise ParseError(f"metric {name}: {text!r} is not a number") from None


def _json_object(stdout: Output) -> dict[str, Json]:
    """All of stdout if it is one JSON object, else its last line that starts one. A line cut short is an error, never
    a reason to go back to an earlier line, which would be an earlier figure (B37)."""
    text = "" if stdout.dropped_bytes else _decode(stdout.head + stdout.tail).strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except ValueError:
            pass
        else:
            return dict(value)
    lines = [line for line in _searchable(stdout)[0].split("\n") if line.lstrip().startswith("{")]
    if not lines:
        raise ParseError(f"metrics are declared as json, but no line of stdout starts a JSON object{_seen(stdout)}")
    try:
        value = json.loads(lines[-1])
    except ValueError as error:
        raise ParseError(f"the last JSON object on stdout cannot be read: {error}{_seen(stdout)}") from None
    return dict(value)


def _seen(stdout: Output) -> str:
    shown = _decode(stdout.tail or stdout.head)[-80:]
    dropped = f", of which {stdout.dropped_bytes} in the middle were not kept" if stdout.dropped_bytes else ""
    return f" ({stdout.total_bytes} bytes in all{dropped}, ending {shown!r})"


def _flatten(prefix: str, value: Mapping[str, Json]) -> Iterator[tuple[str, int | float | list[int | float]]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _flatten(f"{name}.", item)
        elif _is_number(item) or (
            isinstance(item, list) and item and all(_is_number(one) and math.isfinite(one) for one in item)
        ):
            yield name, item


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_sample_list(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(_is_number(one) and math.isfinite(one) for one in value)


def _objection(declared: Json, metrics: Mapping[str, int | float]) -> str | None:
    """Why this output is no result, or None."""
    if isinstance(declared, Mapping):
        missing = [name for name in declared if name not in metrics]
        if missing:
            return f"the program ended well but printed no {_list(missing)}"
    elif declared == "json" and not metrics:
        return "the program ended well but its JSON holds no number"
    odd = [f"{name} = {value}" for name, value in metrics.items() if not math.isfinite(value)]
    return f"not a finite number: {_list(odd)}" if odd else None


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def _why_it_failed(raw: RawResult) -> str:
    code = raw.returncode
    if code is None:
        how = "no exit status"
    elif code == -signal.SIGKILL and raw.oom_kills == 0:
        how = "killed by signal 9 (SIGKILL), not for lack of memory (no OOM kill was counted)"
    elif code < 0:
        how = f"killed by signal {-code} ({_signal_name(-code)})"
    else:
        how = f"exit status {code}"
    lines = [line.strip() for line in _decode(raw.stderr.tail or raw.stderr.head).split("\n") if line.strip()]
    return f"{how}: {lines[-1][:400]}" if lines else f"{how}, nothing on stderr"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
