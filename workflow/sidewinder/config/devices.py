"""A device of a config: its section checked and turned into a ``Device``."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from sidewinder import ids
from sidewinder.errors import ConfigError
from sidewinder.model import EMPTY, Device

from . import pods, standins
from .positions import Path
from .problems import Problems
from .schema import KINDS, SECTION_OF, BreakerSection, DeviceSection, KubernetesSection

_COMMON: Final = frozenset(DeviceSection.model_fields) - {"workdir"}


def read_devices(
    raw: object,
    breaker: BreakerSection,
    backends: frozenset[str],
    problems: Problems,
    files: Sequence[str] = (),
    base_dir: str = ".",
) -> dict[str, Device]:
    """``files`` and ``base_dir``: where a file that a device names is looked for."""
    if not isinstance(raw, Mapping) or not raw:
        problems.add("at least one device must be defined here (`devices: {local: {}}` is this machine)", ("devices",))
        return {}
    _refuse_twins(list(raw), problems)
    found: dict[str, Device] = {}
    for name, section in raw.items():
        try:
            ids.check_device_id(name)
        except ConfigError as error:
            problems.add(error.rule, ("devices", name), value=name)
            continue
        device = _read_device(name, section, breaker, backends, problems, files, base_dir)
        if device is not None:
            found[name] = device
    standins.check_names(found, raw, problems)
    pods.check_twins(found.values(), problems)
    return _with_locks(found, raw)


def _refuse_twins(names: list[str], problems: Problems) -> None:
    """Names that differ in case or Unicode form only are one folder on a Mac or a Windows share (B01, B09)."""
    first: dict[str, str] = {}
    for name in names:
        folded = unicodedata.normalize("NFC", name).casefold()
        if folded in first:
            rule = f"differs from {first[folded]!r} in case or Unicode form only: one folder on some file systems"
            problems.add(rule, ("devices", name), value=name)
        first.setdefault(folded, name)


def kind_of(section: Mapping[str, Any]) -> str:
    """M-19: an explicit kind wins; else what the section names decides."""
    kind = section.get("kind")
    if kind:
        return "kubernetes" if kind == "k8s" else str(kind)
    if section.get("image") or section.get("pod") or section.get("namespace"):
        return "kubernetes"
    return "ssh" if section.get("host") else "local"


def _read_device(
    name: str,
    raw: object,
    breaker: BreakerSection,
    backends: frozenset[str],
    problems: Problems,
    files: Sequence[str],
    base_dir: str,
) -> Device | None:
    path: Path = ("devices", name)
    if raw is not None and not isinstance(raw, Mapping):
        problems.add("must be a mapping (`key: value`), or empty for this machine", path)
        return None
    section: dict[str, Any] = dict(raw or {})
    kind = kind_of(section)
    if kind not in SECTION_OF:
        problems.add(f"no such kind of device; known are {', '.join(KINDS)}", (*path, "kind"))
        return None
    schema = SECTION_OF[kind]
    engines = {key: section.pop(key) for key in list(section) if key in backends and key not in schema.model_fields}
    for key, engine in engines.items():
        if engine is not None and not isinstance(engine, Mapping):
            problems.add("settings of a backend must be a mapping (`key: value`)", (*path, key))
            return None
    before = len(problems)
    known = {*schema.model_fields, *backends}
    for key in sorted(set(section) - known):
        owners = [other for other in KINDS if key in SECTION_OF[other].model_fields]
        hint = f"this device is of kind {kind}; {key} belongs to kind {', '.join(owners)}" if owners else None
        problems.add_unknown_key((*path, key), known, hint=hint)
        del section[key]
    try:
        checked = schema.model_validate(section)
    except ValidationError as error:
        problems.add_invalid(error, path, schema)
        return None
    settings = _settings(checked, path, problems)
    if isinstance(checked, KubernetesSection):
        pods.check(checked, settings, path, files, base_dir, problems)
    both: list[str] = sorted(set(checked.secrets) & set(checked.env or {}))
    if both:
        problems.add(f"{both[0]} is both in env (written down) and in secrets (never written down)", path)
    if checked.idle_gate is not None and checked.max_concurrency > 1:
        problems.add("its own runs would keep the device busy: it needs a max_concurrency of 1", (*path, "idle_gate"))
    return None if len(problems) > before else _device(name, kind, checked, breaker, settings, engines)


def _settings(section: DeviceSection, path: Path, problems: Problems) -> dict[str, Any]:
    """What only the transport understands, as far as it was given."""
    given = section.model_dump(exclude_unset=True, exclude_none=True)
    found = {key: value for key, value in given.items() if key not in _COMMON}
    for alias, name in pods.ALIASES.items():
        if alias in found:
            if name in found:
                problems.add(f"{alias} and {name} are the same setting: give one", (*path, alias))
            found[name] = found.pop(alias)
    return found


def _device(
    name: str,
    kind: str,
    section: DeviceSection,
    breaker: BreakerSection,
    settings: dict[str, Any],
    engines: Mapping[str, Any],
) -> Device:
    def first(*values: Any) -> Any:
        return next((value for value in values if value is not None), None)

    recovery_after_s = first(section.recovery_after_s, breaker.recovery_after_s)
    # down for two full cooldowns without a completed run: docs/design.md §4
    give_up_after_s = first(section.give_up_after_s, breaker.give_up_after_s, 2 * recovery_after_s)
    return Device(
        id=name,
        kind=kind,
        max_concurrency=section.max_concurrency,
        max_transport_failures=first(section.max_transport_failures, breaker.max_transport_failures),
        recovery_after_s=float(recovery_after_s),
        give_up_after_s=None if give_up_after_s == "never" else float(give_up_after_s),
        failover_to=tuple(section.failover_to),
        resource_group=section.resource_group,
        group_max_concurrency=section.group_max_concurrency,
        python=section.python,
        env=section.env or EMPTY,
        secrets=tuple(section.secrets),
        dram_peak_GBs=section.dram_peak_GBs,
        dram_measured_GBs=section.dram_measured_GBs,
        accelerator=section.accelerator,
        idle_gate=section.idle_gate.model_dump() if section.idle_gate is not None else EMPTY,
        lock=section.lock or "",
        settings=settings or EMPTY,
        backends={key: dict(engine) for key, engine in engines.items() if engine} or EMPTY,
    )


def place_of(device: Device) -> tuple[str, ...]:
    """What tells whether two devices are the same machine, as far as a config can know."""
    if device.kind == "local":
        return ("local",)
    if device.kind == "ssh":
        return "ssh", str(device.settings["host"]), str(device.settings.get("port", 22))
    return "kubernetes", device.id


def _with_locks(devices: dict[str, Device], raw: Mapping[str, Any]) -> dict[str, Device]:
    """Two devices of one host need two slot locks, else one would wait for the other's."""

    places = [place_of(device) for device in devices.values()]
    found = {}
    for name, device in devices.items():
        shared = places.count(place_of(device)) > 1
        found[name] = device if device.lock else replace(device, lock=f"slot-{name}" if shared else "slot")
    return found
