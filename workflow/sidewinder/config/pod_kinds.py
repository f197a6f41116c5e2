"""A kind of value that Kubernetes reads: names, labels, paths and quantities, by its own rules.

What is wrong here the API server would refuse as well, but only when the sweep runs.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from sidewinder import quantity

from . import values
from .kinds import Checked, Several

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PART: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]*")
_TAG_OR_DIGEST: Final = re.compile(r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?")
NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


def _label(value: Any) -> str:
    found = values.text(value)
    if not _LABEL.fullmatch(found):
        raise values.rule("must be a DNS label: at most 63 of a-z 0-9 -, first and last a letter or a digit")
    return found


def _is_subdomain(text: str) -> bool:
    return len(text) <= 253 and all(_PART.fullmatch(part) for part in text.split("."))


def _subdomain(value: Any) -> str:
    found = values.text(value)
    if not _is_subdomain(found):
        raise values.rule(
            "must be a Kubernetes name: at most 253 of a-z 0-9 - . (each part starts and ends with a-z 0-9)"
        )
    return found


def _is_qualified(text: str) -> bool:
    prefix, slash, name = text.rpartition("/")
    return bool(_QUALIFIED.fullmatch(name)) and (not slash or _is_subdomain(prefix))


def _label_key(value: Any) -> str:
    found = values.text(value)
    if not _is_qualified(found):
        raise values.rule("is no label key: [prefix/]name, at most 63 of A-Z a-z 0-9 - _ . in the name")
    return found


def _label_value(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str):
        raise values.rule("a label's value is text: write it in quotes")
    if value and not _QUALIFIED.fullmatch(value):
        raise values.rule("is no label value: at most 63 of A-Z a-z 0-9 - _ .")
    return value


def _resource_name(value: Any) -> str:
    found = values.text(value)
    if found in NATIVE:
        raise values.rule("has a key of its own beside `resources`")
    if not (_is_qualified(found) and ("/" in found or found.startswith("hugepages-"))):
        raise values.rule("is no extended resource: they are called domain/name, as in nvidia.com/gpu")
    return found


def _image(value: Any) -> str:
    found = values.text(value)
    path = re.split(r"[:@](?!.*/)", found, maxsplit=1)[0]
    if not _IMAGE.fullmatch(found) or not _TAG_OR_DIGEST.fullmatch(found[len(path) :]) or "//" in path:
        raise values.rule("is no image reference: [registry/]name[:tag][@sha256:digest]")
    return found


def _mount_path(value: Any) -> str:
    found = values.text(value)
    if not found.startswith("/") or ":" in found or ".." in found.split("/"):
        raise values.rule("must be an absolute path without `..` and `:`")
    return found


def _secret_key(value: Any) -> str:
    found = values.text(value)
    name, _, key = found.partition("/")
    if not _is_subdomain(name) or not _KEY.fullmatch(key):
        raise values.rule("must be SECRET/KEY: the name of a Secret of that namespace and a key in it")
    return found


def _amount(value: Any) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    found = values.text(value)
    try:
        amount = quantity.parse(found)
    except ValueError:
        raise values.rule("must be a Kubernetes quantity such as 2, 500m or 4Gi") from None
    if amount <= 0:
        raise values.rule("must be more than 0; leave it out for no limit")
    return found


def _cpu(value: Any) -> str:
    found = _amount(value)
    if (quantity.parse(found) * 1000).denominator != 1:
        raise values.rule("is finer than a thousandth of a CPU (1m)")
    return quantity.canonical(found)


def _bytes(value: Any) -> str:
    found = _amount(value)
    if quantity.parse(found).denominator != 1:
        hint = ": m is a thousandth, mebibytes are Mi" if found.endswith("m") else ""
        raise values.rule(f"is not a whole number of bytes{hint}")
    return quantity.canonical(found)


def _count(value: Any) -> str:
    found = _amount(value)
    if quantity.parse(found).denominator != 1:
        raise values.rule("an extended resource is counted in whole numbers")
    return quantity.canonical(found)


def _idle(value: Any) -> float | str:
    if value == "never":
        return "never"
    found: float = values.number(value)
    if found < LEAST_IDLE_S:
        raise values.rule(f"must be {LEAST_IDLE_S} or more (a run outlives its link by a minute), or `never`")
    return found


LEAST_IDLE_S: Final = 120

Label = Annotated[str, Checked(_label, type="string")]
Name = Annotated[str, Checked(_subdomain, type="string")]
Names = Annotated[list[str], Several(_subdomain, type="string")]
LabelKey = Annotated[str, Checked(_label_key, type="string")]
LabelValue = Annotated[str, Checked(_label_value, type="string")]
ResourceName = Annotated[str, Checked(_resource_name, type="string")]
Image = Annotated[str, Checked(_image, type="string")]
MountPath = Annotated[str, Checked(_mount_path, type="string")]
SecretKey = Annotated[str, Checked(_secret_key, type="string")]
Cpu = Annotated[str, Checked(_cpu, type=["string", "number"])]
Bytes = Annotated[str, Checked(_bytes, type=["string", "number"])]
Count = Annotated[str, Checked(_count, type=["string", "integer"])]
IdleSeconds = Annotated[
    float | str, Checked(_idle, anyOf=[{"type": "number", "minimum": LEAST_IDLE_S}, {"const": "never"}])
]
