"""The loader: takes a merged config apart, section by section, and puts a plan together, or tells every problem."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from sidewinder.errors import ConfigError
from sidewinder.model import EMPTY, Device, Lab, Plan, Policy, RetryPolicy
from sidewinder.workloads import registry

from . import merging, schema, standins
from .blocks import ALIASES, read_blocks
from .devices import place_of, read_devices
from .expand import Expansion
from .models import read_models
from .positions import Path, Positions
from .problems import Problems, did_you_mean
from .selection import select
from .values import clean

FOREIGN_BACKENDS = frozenset({"onnxruntime"})  # mlsys has it, we do not: its device blocks are read, its points refused


def load(
    config: Mapping[str, Any],
    *,
    files: Sequence[str] = (),
    base_dir: str = ".",
    check_workloads: bool = True,
    environ: Mapping[str, str] | None = None,
) -> Plan:
    """The plan that a merged config asks for. Raises ``ConfigError`` with everything that is wrong with it.

    ``files`` are re-read only to name file and line. ``check_workloads=False`` plans for backends that are not here.
    """
    files = [os.fspath(file) for file in files]
    if not isinstance(config, Mapping):
        raise ConfigError("a config must be a mapping (`key: value`) at the top level")
    positions = Positions(files)
    problems = Problems(config, positions)
    for repeated in positions.repeated_keys():
        hint = f"the first one is in line {repeated.first_line}; YAML would silently keep the last"
        problems.add("this key stands twice in one mapping", repeated.path, hint=hint, at=repeated.position)
    cleaned: dict[str, Any] = clean(config, problems.add)
    document = _document(cleaned, problems)
    experiment = document.experiment or _stem(files) or "unnamed"
    backends = frozenset(registry.known()) | FOREIGN_BACKENDS
    warnings: list[str] = []
    devices = read_devices(cleaned.get("devices"), document.policy.breaker, backends, problems, files, base_dir)
    models = read_models(cleaned.get("models"), problems, warnings)
    blocks = read_blocks(cleaned, base_dir, files, problems)
    expansion = Expansion(
        experiment=experiment,
        devices=devices,
        models=models,
        device_names=_names(cleaned.get("devices")),
        model_names=_names(cleaned.get("models")),
        check_workloads=check_workloads,
        problems=problems,
    )
    for block in blocks:
        expansion.add(block)
    expansion.finish()
    used = [devices[name] for name in dict.fromkeys(point.device for point in expansion.points.values())]
    if any(device.failover_to for device in used):
        standins.check_models(expansion.points.values(), devices, models, problems)
        names = dict.fromkeys(name for device in used for name in (device.id, *device.failover_to))
        used = [devices[name] for name in names if name in devices]
    _check_secrets(used, os.environ if environ is None else environ, problems)
    if not len(problems):  # else run ids would be called unknown that only a mistake elsewhere keeps away
        _check_accepted(document.accept or {}, expansion.points, problems)
    problems.raise_any()
    warnings += [*expansion.warnings, *_odd_groups(devices.values()), *_odd_paths(models.values(), devices)]
    lab = Lab(
        experiment=experiment,
        output_dir=(document.output_dir or f"runs/{experiment}").rstrip("/") or "/",
        devices=devices,
        models=models,
        policy=_policy(document),
        accept=document.accept or EMPTY,
    )
    plan = Plan(lab=lab, points=expansion.points, warnings=tuple(warnings))
    return select(plan, device=document.device, model=document.model, mode=document.mode, limit=document.limit)


def load_files(
    paths: Sequence[str], overrides: Mapping[str, Any] | None = None, *, base_dir: str = ".", **options: Any
) -> Plan:
    """``load`` of several files merged as Snakemake merges them, and of what the command line puts above them."""
    names = [os.fspath(path) for path in paths]
    return load(merging.read_files(names, overrides or {}), files=names, base_dir=base_dir, **options)


def json_schema() -> dict[str, Any]:
    """JSON Schema of a config, for editors. What only the whole config can tell (names, duplicates) is not in it."""
    return schema.json_schema((*registry.known(), *FOREIGN_BACKENDS), dict(ALIASES))


def _stem(files: Sequence[str]) -> str:
    return os.path.splitext(os.path.basename(files[0]))[0] if files else ""


def _names(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _document(cleaned: Mapping[str, Any], problems: Problems) -> schema.Document:
    try:
        document = schema.Document.model_validate(cleaned)
    except ValidationError as error:
        problems.add_invalid(error, (), schema.Document)
        return schema.Document()
    for name in ("allow_holes", "points_per_job", "controller_shares_local"):
        above, inside = getattr(document, name), getattr(document.policy, name)
        if above is not None and name in document.policy.model_fields_set and above != inside:
            problems.add("is given at the top and in `policy` with another value: give one of them", (name,))
    return document


def _policy(document: schema.Document) -> Policy:
    policy = document.policy

    def either(name: str) -> Any:
        above = getattr(document, name)
        return getattr(policy, name) if above is None else above

    return Policy(
        retry=RetryPolicy(**policy.retry.model_dump()),
        order_by=policy.order.by,
        order_seed=policy.order.seed,
        busy_wait_s=policy.busy_wait_s,
        allow_holes=either("allow_holes"),
        points_per_job=either("points_per_job"),
        controller_shares_local=either("controller_shares_local"),
    )


def _check_secrets(devices: Sequence[Device], environ: Mapping[str, str], problems: Problems) -> None:
    for device in devices:
        for name in device.secrets:
            if not environ.get(name):
                path: Path = ("devices", device.id, "secrets")
                problems.add(
                    f"the secret {name} is not set in the controller's environment",
                    path,
                    hint=f"export {name}=... first",
                )


def _check_accepted(accept: Mapping[str, str], points: Mapping[str, Any], problems: Problems) -> None:
    for run_id in accept:
        if run_id not in points:
            near = did_you_mean(run_id, points)
            hint = (
                near
                if near and near.startswith("did you mean")
                else "`sidewinder plan` lists the run ids of this config"
            )
            problems.add("no point of this config has this run id", ("accept", run_id), value=run_id, hint=hint)


def _odd_groups(devices: Any) -> list[str]:
    found, seen = [], dict[tuple[str, ...], Device]()
    for device in devices:
        if device.group_max_concurrency is not None and device.resource_group is None:
            found.append(f"devices.{device.id}: group_max_concurrency has no effect without a resource_group")
        other = seen.setdefault(place_of(device), device)
        if other is not device and (device.resource_group is None or device.resource_group != other.resource_group):
            found.append(
                f"devices {other.id} and {device.id} are one machine but share no resource_group:"
                " they will be measured at the same time and disturb each other"
            )
    return found


def _odd_paths(models: Any, devices: Mapping[str, Device]) -> list[str]:
    return [
        f"models.{model.id}.paths names {name}, which is no device of this lab"
        for model in models
        for name in model.paths
        if name not in devices
    ]
