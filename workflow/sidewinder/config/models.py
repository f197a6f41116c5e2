"""A model of a config: its section checked and turned into a ``Model``."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sidewinder.model import EMPTY, Model

from .positions import Path
from .problems import Problems
from .schema import ModelSection


def read_models(raw: object, problems: Problems, warnings: list[str]) -> dict[str, Model]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        problems.add("must be a mapping of model names (`name: path`)", ("models",))
        return {}
    first: dict[str, str] = {}
    found: dict[str, Model] = {}
    for name, section in raw.items():
        path: Path = ("models", name)
        composed = unicodedata.normalize("NFC", name)
        if composed in first:
            problems.add(f"is the same name as {first[composed]!r} in another Unicode form", path)
        first.setdefault(composed, name)
        model = _read_model(name, section, path, problems, warnings)
        if model is not None:
            found[name] = model
    return found


def _read_model(name: str, raw: Any, path: Path, problems: Problems, warnings: list[str]) -> Model | None:
    section = {"path": raw} if isinstance(raw, str) else raw
    if not isinstance(section, Mapping):
        problems.add("must be a path, or a mapping with `path` or `paths`", path)
        return None
    if not name:
        problems.add("a model needs a name", path)
        return None
    try:
        checked = ModelSection.model_validate(section)
    except ValidationError as error:
        problems.add_invalid(error, path, ModelSection)
        return None
    sha256 = checked.sha256
    if sha256 is not None and sha256.endswith(("…", "...")):
        # Half a digest proves nothing: rather none than one that is not checked.
        warnings.append(f"models.{name}.sha256 is cut short ({sha256}) and so not used: write all 64 characters")
        sha256 = None
    return Model(
        id=name,
        path=checked.path,
        paths=checked.paths or EMPTY,
        stage=checked.stage,
        sha256=sha256,
        quantization=checked.quantization,
        tags=tuple(checked.tags),
        batch_size=checked.batch_size,
        input_shape=checked.input_shape,
        params=checked.params,
    )
