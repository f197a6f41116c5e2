"""The plan on disk: ``plan.json``, what was asked of a run folder, read by the plugin, the CLI and the report.

Compact, because 20 000 points are read at every start: one line a point, and of each only what differs from a default.
The campaign is a uuid made once per run folder: devices know our runs by it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from sidewinder.errors import ConfigError
from sidewinder.model import Device, Lab, Model, Plan, Point, Policy, RetryPolicy

from . import atomic
from .layout import RunFolder

PLAN_VERSION: Final = 1
_CAMPAIGN: Final = re.compile(rb'"campaign":\s*"([0-9a-f-]{36})"')


def publish(folder: str, plan: Plan, *, ops: atomic.FileOps = atomic.REAL) -> Plan:
    """Put the plan on disk unless it is there already; the plan with the run folder's campaign.

    ``selected`` is this invocation's and not written. Raises ``PublishError`` where the folder cannot be written, which
    a dry run turns into a warning.
    """
    path = RunFolder(folder).plan
    old = _old(path)
    body = _encode(plan)
    campaign = _campaign_in(old)
    if campaign is None:
        campaign = plan.campaign or str(uuid.uuid4())
        if old is None and atomic.publish_new(path, _with_campaign(campaign, body), what="plan", ops=ops):
            return dataclasses.replace(plan, campaign=campaign)
        # Two starts at once, and the other was first: its campaign counts for both.
        old = _old(path)
        campaign = _campaign_in(old) or campaign
    data = _with_campaign(campaign, body)
    if data != old:
        atomic.publish(path, data, what="plan", ops=ops)
    return dataclasses.replace(plan, campaign=campaign)


def read(folder: str) -> Plan:
    """The plan of a run folder. Raises ``ConfigError`` where there is none or it cannot be used."""
    path = RunFolder(folder).plan
    try:
        with open(path, "rb") as file:
            value = json.loads(file.read())
        return _decode(value)
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no plan in {folder}", file=path, hint="start the sweep once: it writes the plan"
        ) from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the plan cannot be read ({type(error).__name__}: {error})",
            file=path,
            hint="start the sweep once more: it writes the plan anew",
        ) from error


def _old(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return None


def _campaign_in(data: bytes | None) -> str | None:
    """Also out of a torn plan: with another campaign the devices' running attempts would be strangers to us."""
    found = _CAMPAIGN.search(data[:4096]) if data else None
    return found.group(1).decode() if found else None


def _with_campaign(campaign: str, body: bytes) -> bytes:
    return b'{"plan_version":%d,"campaign":"%b",\n' % (PLAN_VERSION, campaign.encode()) + body


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encode(plan: Plan) -> bytes:
    """Everything but the campaign."""
    lab = plan.lab
    head = {
        **_changed(lab, skip=("devices", "models", "policy")),
        "devices": {name: _changed(device, skip=("id",)) for name, device in lab.devices.items()},
        "models": {name: _changed(model, skip=("id",)) for name, model in lab.models.items()},
        "policy": {
            **_changed(lab.policy, skip=("retry",)),
            "retry": _changed(lab.policy.retry),
        },
    }
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
    points = ",\n".join(
        f"{encode(run_id)}:{encode(_point_fields(point, lab.experiment))}" for run_id, point in plan.points.items()
    )
    text = f'"lab":{_dumps(head)},\n"warnings":{_dumps(plan.warnings)},\n"points":{{\n{points}\n}}}}\n'
    return text.encode("utf-8", "surrogatepass")


_POINT_FIELDS: Final = tuple(
    (f.name, f.default) for f in dataclasses.fields(Point) if f.name not in ("run_id", "experiment")
)
_POINT_DEFAULTS: Final = tuple(default for _, default in _POINT_FIELDS)
_POINT_NAMES: Final = tuple(name for name, _ in _POINT_FIELDS)
_values_of: Final[Callable[[Point], tuple[Any, ...]]] = attrgetter(*_POINT_NAMES)


def _point_fields(point: Point, experiment: str) -> dict[str, Any]:
    """Compared by identity first: most fields hold the very default object."""
    fields = {
        name: value
        for name, value, default in zip(_POINT_NAMES, _values_of(point), _POINT_DEFAULTS, strict=True)
        if value is not default and value != default
    }
    if point.experiment != experiment:
        fields["experiment"] = point.experiment
    return fields


def _changed(value: Any, skip: Iterable[str] = ()) -> dict[str, Any]:
    """The fields of a dataclass that are not at their default."""
    found = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if field.name not in skip and (field.default is dataclasses.MISSING or content != field.default):
            found[field.name] = content
    return found


def _decode(value: Any) -> Plan:
    if value["plan_version"] != PLAN_VERSION:
        raise ValueError(f"plan_version {value['plan_version']!r} is of another Sidewinder")
    head = value["lab"]
    policy = dict(head["policy"])
    retry = RetryPolicy(**_known(RetryPolicy, policy.pop("retry", {})))
    lab = Lab(
        **{
            **_known(Lab, head),
            "devices": {name: Device(id=name, **_known(Device, fields)) for name, fields in head["devices"].items()},
            "models": {name: Model(id=name, **_known(Model, fields)) for name, fields in head["models"].items()},
            "policy": Policy(retry=retry, **_known(Policy, policy)),
        }
    )
    experiment = sys.intern(lab.experiment)
    allowed = frozenset(_POINT_NAMES) | {"experiment"}
    shared: dict[str, Any] = {}
    points = {run_id: _point(run_id, fields, experiment, allowed, shared) for run_id, fields in value["points"].items()}
    return Plan(lab=lab, points=points, campaign=value["campaign"], warnings=tuple(value.get("warnings", ())))


_TUPLES: Final = frozenset({"command", "stage", "tags"})


def _point(
    run_id: str, fields: dict[str, Any], experiment: str, allowed: frozenset[str], shared: dict[str, Any]
) -> Point:
    """Texts are interned and equal containers shared: a plan says `pi5` and one `prepare` block 20 000 times."""
    if not fields.keys() <= allowed:
        fields = {name: content for name, content in fields.items() if name in allowed}
    for name, content in fields.items():
        if type(content) is str:
            fields[name] = sys.intern(content)
        elif isinstance(content, dict | list):
            made = tuple(content) if name in _TUPLES else content
            fields[name] = shared.setdefault(name + repr(content), made)
    return Point(run_id, fields.pop("experiment", experiment), **fields)


def _known(kind: type, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What this version knows, with lists as the tuples they were."""
    names = {f.name: str(f.type).startswith("tuple") for f in dataclasses.fields(kind)}
    return {
        name: tuple(content) if names[name] and isinstance(content, list) else content
        for name, content in fields.items()
        if name in names
    }
