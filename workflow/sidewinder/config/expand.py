"""Expansion: blocks multiplied out into points, each under its run id.

Tens of thousands of points are usual, so whatever is the same for many of them (parameters, extra, tags, paths) is one
object that they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final

from sidewinder import ids
from sidewinder.errors import ConfigError
from sidewinder.model import EMPTY, Device, Model, Point
from sidewinder.workloads import registry
from sidewinder.workloads.base import Workload

from .blocks import AXES, Block, Exclusion, Variant, same
from .positions import Path
from .problems import Problems, did_you_mean, path_of

DEFAULT_BACKEND: Final = "llamacpp"
DEFAULT_MODE: Final = "throughput"
DEFAULT_SAMPLE_HZ: Final = 10.0
# M-14's token counts and repetitions belong to the backends that mlsys knows and to its heir; a command has none.
INFERENCE_DEFAULTS: Final = {"prompt_tokens": 128, "output_tokens": 128, "repetitions": 3}
INFERENCE_BACKENDS: Final = frozenset({"llama", "llamacpp", "onnxruntime"})
MAX_TOLD_TWINS: Final = 5


@dataclass
class Expansion:
    """The points of one config while they are made."""

    experiment: str
    devices: Mapping[str, Device]
    models: Mapping[str, Model]
    device_names: Mapping[str, Any]  # as declared, broken ones too: a broken device is told once, not per use
    model_names: Mapping[str, Any]
    check_workloads: bool
    problems: Problems
    points: dict[str, Point] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _twins: dict[str, list[tuple[Point, Path]]] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        if not self._names_are_known(block):
            return
        maker = _Maker(self, block)
        used = [False] * len(block.exclusions)
        made = 0
        for variant in block.variants:
            for point in maker.points(variant, used):
                made += 1
                if point.run_id in self.points:
                    self._twins.setdefault(point.run_id, []).append((point, block.path))
                else:
                    self.points[point.run_id] = point
        if not made and len(self.problems) == 0:
            self.warnings.append(f"{_name(block)} has no points: its exclusions leave nothing")
        for exclusion, hit in zip(block.exclusions, used, strict=True):
            if not hit and made:
                self.warnings.append(f"{_name(block)}: exclusion {exclusion.path[-1]} leaves nothing out")

    def finish(self) -> None:
        """Tell what can only be known of all points together."""
        for run_id, twins in list(self._twins.items())[:MAX_TOLD_TWINS]:
            point, path = twins[-1]
            self.problems.add(
                f"{len(twins) + 1} points are the same measurement ({_describe(point)}), run id {run_id}",
                path,
                hint="remove the repeated value or block; to see the spread, raise `repetitions` or add a parameter",
            )
        if len(self._twins) > MAX_TOLD_TWINS:
            more = len(self._twins) - MAX_TOLD_TWINS
            self.problems.add(f"{more} more points of the matrix stand in it more than once", ("matrix",))
        if not self.points and len(self.problems) == 0:
            self.problems.add("the matrix has no points at all", ("matrix",))

    def _names_are_known(self, block: Block) -> bool:
        before = len(self.problems)
        seen: set[tuple[str, str | None]] = set()
        for variant in block.variants:
            for key, known, what in (("devices", self.device_names, "device"), ("models", self.model_names, "model")):
                for index, name in enumerate(variant.axes[key]):
                    if (key, name) in seen:
                        continue
                    seen.add((key, name))
                    path = block.path_of(key)
                    if path != block.path and not variant.position:
                        path = (*path, index)
                    if name is None and key == "devices":
                        rule = "a block needs `devices`: which machines are measured?"
                        self.problems.add(rule, path, at=variant.position)
                    elif name is None:
                        continue
                    elif name not in known:
                        hint = did_you_mean(name, known) or f"there are no {key}"
                        self.problems.add(f"no such {what}", path, value=name, hint=hint, at=variant.position)
        return len(self.problems) == before and seen <= {
            *(("devices", name) for name in self.devices),
            *(("models", name) for name in self.models),
            ("models", None),
        }


class _Maker:
    """Makes the points of one block."""

    def __init__(self, expansion: Expansion, block: Block) -> None:
        self._all, self._block, self._problems = expansion, block, expansion.problems
        section = block.section
        self._prepare = section.prepare.model_dump(exclude_none=True) if section.prepare else EMPTY
        self._extra: Mapping[str, Any] = section.extra or EMPTY
        self._tags = tuple(section.tags)
        self._command = tuple(section.command or ())
        self._stage = tuple(section.stage)
        self._models: dict[tuple[str | None, str, str], dict[str, Any] | None] = {}
        self._modes: dict[tuple[str, str | None], str] = {}
        self._shared: dict[str, Mapping[str, Any]] = {}
        self._checked_on: str | None = None

    def points(self, variant: Variant, used: list[bool]) -> Iterator[Point]:
        backend = variant.settings["backend"] or DEFAULT_BACKEND
        workload = self._workload(backend)
        if self._all.check_workloads and workload is None:
            return
        fixed = self._settings(variant, backend)
        sets = [self._share(dict(_present(names))) for names in _assignments(variant.parameters)]
        axes = [variant.axes[key] for key in AXES]
        first_device = variant.axes["devices"][0]
        fallback = INFERENCE_DEFAULTS if backend in INFERENCE_BACKENDS else EMPTY
        for device, model, mode, threads, prompt, output, context, batch, governor, freq, kv in product(*axes):
            file = self._model(model, device, backend)
            if file is None:
                continue
            values = (device, model, mode, threads, prompt, output, context, batch, governor, freq, kv)
            for parameters in sets:
                if self._block.exclusions and _is_excluded(self._block.exclusions, values, parameters, used):
                    continue
                point = Point(
                    run_id="",
                    experiment=self._all.experiment,
                    device=device,
                    backend=backend,
                    mode=self._mode(backend, mode, workload),
                    model=model,
                    prompt_tokens=fallback.get("prompt_tokens") if prompt is None else prompt,
                    output_tokens=fallback.get("output_tokens") if output is None else output,
                    context_tokens=context,
                    batch_size=batch,
                    threads=threads,
                    governor=governor,
                    freq_khz=freq,
                    kv_quantization=kv,
                    prepare=self._prepare,
                    parameters=parameters,
                    command=self._command,
                    stage=self._stage,
                    metrics=self._block.section.metrics,
                    **file,
                    **fixed,
                )
                if workload is not None and device == first_device:  # no workload knows the device
                    self._validate(workload, point, variant)
                yield ids.with_run_id(point, self._all.devices[device], self._all.models.get(model or ""))

    def _workload(self, backend: str) -> Workload | None:
        if not self._all.check_workloads:
            return None
        try:
            return registry.get(backend)
        except ConfigError as error:
            self._problems.add(error.rule, self._block.path_of("backend"), value=backend, hint=error.hint)
            return None

    def _settings(self, variant: Variant, backend: str) -> dict[str, Any]:
        """The fields of a point that are the same for a whole variant."""
        found = variant.settings
        power = bool(found["sample_power"])
        fallback = INFERENCE_DEFAULTS["repetitions"] if backend in INFERENCE_BACKENDS else None
        return {
            "repetitions": fallback if found["repetitions"] is None else found["repetitions"],
            "warmup": found["warmup"],
            "flash_attention": found["flash_attention"],
            "sample_power": power,
            "sample_hz": DEFAULT_SAMPLE_HZ if power and found["sample_hz"] is None else found["sample_hz"],
            "priority": found["priority"] or 0,
        }

    def _model(self, name: str | None, device: str, backend: str) -> dict[str, Any] | None:
        """The fields of a point that its model decides; None where it has no file for this device."""
        key = name, device, backend
        if key not in self._models:
            self._models[key] = self._read_model(name, device, backend)
        return self._models[key]

    def _read_model(self, name: str | None, device: str, backend: str) -> dict[str, Any] | None:
        if name is None:
            return {"extra": self._extra, "tags": self._tags}
        model = self._all.models[name]
        path = model.path_on(device)
        if path is None:
            self._problems.add(
                f"has no path for device {device!r}",
                ("models", name),
                hint="give it `path` for every device, `paths` by device, or `stage` to bring it there",
            )
            return None
        extra = dict(self._extra)
        if backend in INFERENCE_BACKENDS:  # M-15: copied into extra; what the block itself says wins
            for what, value in (("batch_size", model.batch_size), ("input_shape", model.input_shape)):
                if value is not None:
                    extra.setdefault(what, value)
        return {
            "model_path": path,
            "model_sha256": model.sha256,
            "quantization": model.quantization,
            "extra": self._share(extra),
            "tags": (*self._tags, *model.tags),
        }

    def _mode(self, backend: str, mode: str | None, workload: Workload | None) -> str:
        key = backend, mode
        if key not in self._modes:
            self._modes[key] = self._find_mode(backend, mode, workload)
        return self._modes[key]

    def _find_mode(self, backend: str, mode: str | None, workload: Workload | None) -> str:
        if workload is None:
            return mode or DEFAULT_MODE
        own = DEFAULT_MODE if DEFAULT_MODE in workload.modes else min(workload.modes)
        if mode is None or mode in workload.modes:
            return mode or own
        # The lab's default mode is meant for the lab's default backend, not for a block that names another one.
        if self._block.is_own("backend") and not self._block.is_own("modes"):
            return own
        self._problems.add(
            f"backend {backend!r} has no such mode; known are {', '.join(sorted(workload.modes))}",
            self._block.path_of("modes"),
            value=mode,
        )
        return mode

    def _validate(self, workload: Workload, point: Point, variant: Variant) -> None:
        try:
            workload.validate(point)
        except ConfigError as error:
            head, *rest = path_of(error.key or "") or ("",)
            path = self._block.path_of(str(head))
            known = path != self._block.path
            self._problems.add(
                error.rule if known or not error.key else f"{error.key}: {error.rule}",
                (*path, *rest) if known else path,
                value=error.value,
                hint=error.hint,
                at=variant.position,
            )

    def _share(self, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        if not mapping:
            return EMPTY
        return self._shared.setdefault(repr(mapping), mapping)


def _assignments(parameters: Mapping[str, Sequence[Any]]) -> Iterator[list[tuple[str, Any]]]:
    names = list(parameters)
    for values in product(*parameters.values()):
        yield list(zip(names, values, strict=True))


def _present(assignment: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in assignment if value is not None]


_AXIS_AT: Final = {key: index for index, key in enumerate(AXES)}


def _is_excluded(
    exclusions: Sequence[Exclusion], values: tuple[Any, ...], parameters: Mapping[str, Any], used: list[bool]
) -> bool:
    found = False
    for index, exclusion in enumerate(exclusions):
        if all(same(values[_AXIS_AT[key]]) in wanted for key, wanted in exclusion.axes.items()) and all(
            same(parameters.get(name)) in wanted for name, wanted in exclusion.parameters.items()
        ):
            found = used[index] = True
    return found


def _describe(point: Point) -> str:
    return f"{point.model or point.backend} on {point.device}, mode {point.mode}"


def _name(block: Block) -> str:
    return f"matrix[{block.path[1]}]" if len(block.path) > 1 else "matrix"
