"""A run id: the name of one measurement, made of everything declared that changes it.

Two points have the same run id exactly when they ask for the same measurement, on every machine, operating system and
Python version. The hash decides; the readable part in front is for people and may be cut.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from .errors import ConfigError
from .model import KNOB_AXES, WORKLOAD_AXES, Device, Model, Point

MAX_RUN_ID_CHARS: Final = 63  # a Kubernetes name; far below the 255 bytes of a file name (report B05)
HASH_CHARS: Final = 12
DEVICE_ID_RULE: Final = "1 to 63 of the characters A-Z a-z 0-9 . _ -, the first one a letter or a digit"

_DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NOT_SLUG = re.compile(r"[^a-z0-9]+")
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False
)
_POD_PREFIX = "sidewinder-"
_NAME_CHARS = 20  # of device and of model in the slug, so that the axes behind them stay readable

_SCALARS = (
    "experiment",
    "device",
    "backend",
    "mode",
    "model",
    "model_sha256",
    *WORKLOAD_AXES,
    *KNOB_AXES,
    "sample_hz",
    "metrics",
    "failover_from",
)
_CONTAINERS = ("prepare", "parameters", "extra", "command", "stage")
_scalars_of = attrgetter(*_SCALARS)
_but_run_id_of = attrgetter(*[field.name for field in fields(Point)][1:])
_containers_of = attrgetter(*_CONTAINERS)
# What a pod is made of decides its speed (M-42), and so does a node that it is pinned to. Its name, its namespace and
# how it gets there (tolerations, priority, service account, timeouts) do not belong to the declaration. Nor does
# `host_mounts`, mlsys' key: its labs keep their run ids.
_PLACEMENT = (
    "image",
    "cpu",
    "memory",
    "ephemeral_storage",
    "cpu_request",
    "memory_request",
    "ephemeral_storage_request",
    "resources",
    "runtime_class",
    "node_name",
    "node_selector",
    "affinity",
    "env_from_secrets",
    "volumes",
    "pod_template",
)


def canonical(value: Any) -> str:
    """The one JSON text of a value: keys sorted, no blanks, text NFC, an integral float is an int, ``-0.0`` is 0."""
    return _ENCODER.encode(_plain(value))


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool or kind is int:
        return value
    if kind is float:
        return number(value)
    if kind is dict or isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (str, int, float)):  # a subclass (an enum): the value counts, not its class
        return _plain(value.__str__() if isinstance(value, str) else value + 0)
    raise ConfigError(f"a {kind.__name__} has no place here: write it as text in quotes", value=value)


def _plain_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    plain = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ConfigError("a key must be text: write it in quotes", value=key)
        kind = type(item)
        # the identity of every point passes here: the two usual kinds are not worth a call
        simple = kind is int or (kind is str and item.isascii())
        plain[key if key.isascii() else _text(key)] = item if simple else _plain(item)
    if len(plain) != len(value):
        raise ConfigError("two keys are the same text in Unicode normal form C", value=sorted(value))
    return plain


def number(value: float) -> int | float:
    """The one spelling of a number: whole ones are ints, so 2.0 is 2 and -0.0 is 0; NaN and infinities are refused."""
    if not math.isfinite(value):
        raise ConfigError(
            "NaN and infinities are no values to measure at (NaN is not even equal to itself)", value=value
        )
    return int(value) if value == int(value) else value


def _text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError("this text is not valid Unicode (a lone surrogate)", value=value) from None
    return unicodedata.normalize("NFC", value)


def digest(value: Any) -> str:
    """64 hex characters of SHA-256 over the canonical JSON of ``value``."""
    return hashlib.sha256(canonical(value).encode("utf-8")).hexdigest()


def run_id(identity: Mapping[str, Any], slug_parts: Sequence[str]) -> str:
    """``slug-<12 hex>``: at most 63 characters of ``[a-z0-9-]``, starting and ending alphanumeric (DNS-1123)."""
    slug = "-".join(filter(None, map(_slug, slug_parts)))
    slug = slug[: MAX_RUN_ID_CHARS - HASH_CHARS - 1].rstrip("-") or "run"
    return f"{slug}-{digest(identity)[:HASH_CHARS]}"


@lru_cache(maxsize=4096)
def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return _NOT_SLUG.sub("-", plain).strip("-")


def slug_parts(point: Point) -> list[str]:
    """The readable words of a point. They depend on the point alone, so that a growing sweep keeps its run ids."""
    parts = [point.device[:_NAME_CHARS], (point.model or point.backend)[:_NAME_CHARS]]
    if point.mode != "throughput":
        parts.append(point.mode)
    for letter, value in (
        ("t", point.threads),
        ("p", point.prompt_tokens),
        ("n", point.output_tokens),
        ("c", point.context_tokens),
        ("b", point.batch_size),
        ("", point.governor),
        ("f", point.freq_khz),
        ("kv-", point.kv_quantization),
    ):
        if value is not None:
            parts.append(f"{letter}{value}")
    if point.parameters:
        parts += [f"{name}-{value}" for name, value in point.parameters.items()]
    return parts


def identity(point: Point, device: Device, model: Model | None = None) -> dict[str, Any]:
    """Every declared field that changes the measurement. Absent fields are left out; no tags, no times, nothing probed.

    A model is known by its declared digest, else by its path. Of secrets only the names are here.
    """
    found: dict[str, Any] = {
        name: value for name, value in zip(_SCALARS, _scalars_of(point), strict=True) if value is not None
    }
    for name, value in zip(_CONTAINERS, _containers_of(point), strict=True):
        if value:
            found[name] = value
    if point.model_path is not None and point.model_sha256 is None:
        found["model_path"] = point.model_path
    if point.sample_power:
        found["sample_power"] = True
    if model is not None and model.input_shape is not None and "input_shape" not in point.extra:
        found["input_shape"] = model.input_shape
    if device.env:
        found["env"] = device.env
    if device.secrets:
        found["secrets"] = sorted(device.secrets)
    engine = device.backends.get(point.backend)
    if engine:
        found["engine"] = engine
    if device.kind == "kubernetes":
        placement = {key: device.settings[key] for key in _PLACEMENT if device.settings.get(key) is not None}
        if placement:
            found["placement"] = placement
    return found


def with_run_id(point: Point, device: Device, model: Model | None = None) -> Point:
    """The point under its own run id: for a fresh point, and for one that was moved to another device."""
    # dataclasses.replace does the same in eight times the time, which is felt with tens of thousands of points
    return Point(run_id(identity(point, device, model), slug_parts(point)), *_but_run_id_of(point))


def pod_name(device_id: str) -> str:
    """The name of a device's pod where none is given: readable, a host name, another for every device."""
    if len(device_id) <= MAX_RUN_ID_CHARS - len(_POD_PREFIX) and _HOST_NAME.fullmatch(device_id):
        return _POD_PREFIX + device_id
    tail = "-" + hashlib.sha256(device_id.encode("utf-8")).hexdigest()[:6]
    slug = _slug(device_id)[: MAX_RUN_ID_CHARS - len(_POD_PREFIX) - len(tail)].rstrip("-")
    return f"{_POD_PREFIX}{slug}{tail}"


def check_device_id(text: object) -> str:
    """``text`` if it may name a device, else ``ConfigError``: it becomes a folder, a label and a file name (B01)."""
    if not isinstance(text, str):
        raise ConfigError("a device name must be text: write it in quotes", value=text)
    if not _DEVICE_ID.fullmatch(text):
        raise ConfigError(f"a device name has {DEVICE_ID_RULE}", value=text)
    return text


def shard_id(run_ids: Iterable[str]) -> str:
    """12 hex of SHA-256 over the sorted run ids: the same points make the same shard, in any order."""
    return hashlib.sha256("\n".join(sorted(run_ids)).encode("ascii")).hexdigest()[:HASH_CHARS]
