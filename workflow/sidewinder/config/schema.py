"""The schema: which keys a config may have. Their meaning is told in config/README.md.

A section is checked on its own (one device, one model, one matrix block), so that all problems come in one go;
``json_schema`` puts the sections together for editors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from . import kinds, pod_kinds

KINDS: Final = ("local", "ssh", "kubernetes")


class Section(BaseModel):
    """Part of a config: nothing is allowed in it that is not named here."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RetrySection(Section):
    max_attempts: kinds.Positive = 3
    backoff_s: kinds.Seconds = 5.0
    backoff_factor: kinds.Factor = 2.0
    max_backoff_s: kinds.Seconds = 120.0
    jitter: kinds.Share = 0.25


class BreakerSection(Section):
    """Defaults for every device that does not say otherwise."""

    max_transport_failures: kinds.Positive = 3
    recovery_after_s: kinds.Seconds = 180.0
    give_up_after_s: kinds.SecondsOrNever | None = None  # null: two cooldowns


class OrderSection(Section):
    by: Literal["interleaved", "config"] = "interleaved"
    seed: kinds.Whole = 0


class PolicySection(Section):
    retry: RetrySection = RetrySection()
    breaker: BreakerSection = BreakerSection()
    order: OrderSection = OrderSection()
    busy_wait_s: kinds.Seconds = 600.0
    allow_holes: kinds.Flag = False
    points_per_job: kinds.Positive = 1
    controller_shares_local: kinds.Flag = False


class PrepareSection(Section):
    """What is done to the device before a run (M-17)."""

    reset_swap: kinds.Flag | None = None
    drop_caches: kinds.Flag | None = None
    governor: kinds.Text | None = None
    freq_khz: kinds.Positive | None = None
    settle_s: kinds.Seconds | None = None
    restore_governor: kinds.Flag | None = None


class IdleGateSection(Section):
    """How idle a machine must be before a run starts there. Counters tick each 10 ms: a shorter window says nothing."""

    max_busy_share: kinds.Share = 0.1
    window_s: kinds.Window = 1.0
    wait_s: kinds.Seconds = 60.0


class DeviceSection(Section):
    """Keys of every kind of device (M-18); a block named after a backend may stand beside them."""

    settings_of_kind: ClassVar[frozenset[str]] = frozenset()

    kind: Literal["local", "ssh", "kubernetes", "k8s"] | None = None
    python: kinds.Text | None = None
    env: dict[kinds.EnvName, kinds.EnvValue] | None = None
    secrets: kinds.EnvNames = []
    max_concurrency: kinds.Positive = 1
    max_transport_failures: kinds.Positive | None = None
    recovery_after_s: kinds.Seconds | None = None
    give_up_after_s: kinds.SecondsOrNever | None = None
    failover_to: kinds.Texts = []
    resource_group: kinds.Text | None = None
    group_max_concurrency: kinds.Positive | None = None
    idle_gate: IdleGateSection | None = None
    lock: kinds.Text | None = None
    dram_peak_GBs: kinds.Rate | None = None
    dram_measured_GBs: kinds.Rate | None = None
    accelerator: kinds.Text | None = None
    workdir: kinds.Text | None = None


class LocalSection(DeviceSection):
    """This machine."""


class SshSection(DeviceSection):
    """A machine that is reached by SSH (M-83)."""

    host: kinds.Text
    user: kinds.Text | None = None
    port: kinds.Port | None = None
    identity_file: kinds.Text | None = None
    known_hosts: kinds.Text | None = None
    ssh_options: kinds.Texts = []
    scope: Literal["auto", "never", "systemd"] | None = None


class HostMountSection(Section):
    """A folder or file of the node, as mlsys writes it; `volumes` says the same and more."""

    host_path: pod_kinds.MountPath
    mount_path: pod_kinds.MountPath
    read_only: kinds.Flag = True
    type: Literal["", "Directory", "DirectoryOrCreate", "File", "FileOrCreate"] = "Directory"
    name: pod_kinds.Label | None = None


class EmptyDirSection(Section):
    """A folder that lives as long as the pod; `medium: Memory` keeps it in memory, which counts against its limit."""

    medium: Literal["", "Memory"] | None = None
    size_limit: pod_kinds.Bytes | None = None


class VolumeSection(Section):
    """A folder that the pod sees: one of the four sources."""

    mount_path: pod_kinds.MountPath
    host_path: pod_kinds.MountPath | None = None
    pvc: pod_kinds.Name | None = None
    config_map: pod_kinds.Name | None = None
    empty_dir: EmptyDirSection | None = None
    type: Literal["", "Directory", "DirectoryOrCreate", "File", "FileOrCreate"] | None = None
    sub_path: kinds.Text | None = None
    read_only: kinds.Flag = False


class TolerationSection(Section):
    key: pod_kinds.LabelKey | None = None
    operator: Literal["Equal", "Exists"] | None = None
    value: pod_kinds.LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: kinds.Natural | None = None


class KubernetesSection(DeviceSection):
    """A container in a pod (M-84). `cpu` and `memory` are limits; requests are the same unless given."""

    image: pod_kinds.Image | None = None
    pod: pod_kinds.Name | None = None
    namespace: pod_kinds.Label | None = None
    container: pod_kinds.Label | None = None
    create: kinds.Flag | None = None
    create_pod: kinds.Flag | None = None
    ready_timeout_s: kinds.Seconds | None = None
    idle_timeout_s: pod_kinds.IdleSeconds | None = None
    kubectl: kinds.Texts = []
    kubeconfig: kinds.Text | None = None
    context: kinds.Text | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: pod_kinds.Names = []
    cpu: pod_kinds.Cpu | None = None
    memory: pod_kinds.Bytes | None = None
    ephemeral_storage: pod_kinds.Bytes | None = None
    cpu_limit: pod_kinds.Cpu | None = None
    memory_limit: pod_kinds.Bytes | None = None
    cpu_request: pod_kinds.Cpu | None = None
    memory_request: pod_kinds.Bytes | None = None
    ephemeral_storage_request: pod_kinds.Bytes | None = None
    resources: dict[pod_kinds.ResourceName, pod_kinds.Count] | None = None
    host_mounts: list[HostMountSection] | None = None
    volumes: list[VolumeSection] | None = None
    env_from_secrets: dict[kinds.EnvName, pod_kinds.SecretKey] | None = None
    node_selector: dict[pod_kinds.LabelKey, pod_kinds.LabelValue] | None = None
    node_name: pod_kinds.Name | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[TolerationSection] | None = None
    runtime_class: pod_kinds.Name | None = None
    priority_class: pod_kinds.Name | None = None
    service_account: pod_kinds.Name | None = None
    pod_template: kinds.Text | dict[str, Any] | None = None


SECTION_OF: Final[dict[str, type[DeviceSection]]] = {
    "local": LocalSection,
    "ssh": SshSection,
    "kubernetes": KubernetesSection,
}


class ModelSection(Section):
    """A file that is measured with (M-15)."""

    path: kinds.Text | None = None
    paths: dict[str, kinds.Text] | None = None
    stage: kinds.Text | None = None
    sha256: kinds.Digest | None = None
    quantization: kinds.Text | None = None
    tags: kinds.Texts = []
    batch_size: kinds.Positive | None = None
    input_shape: Any = None
    params: Any = None


class BlockSection(Section):
    """One block of the matrix: axes (lists multiply, M-12) and settings (M-13)."""

    devices: kinds.TextAxis = [None]
    models: kinds.TextAxis = [None]
    modes: kinds.TextAxis = [None]
    threads: kinds.PositiveAxis = [None]
    prompt_tokens: kinds.NaturalAxis = [None]
    output_tokens: kinds.NaturalAxis = [None]
    context_tokens: kinds.NaturalAxis = [None]
    batch_sizes: kinds.PositiveAxis = [None]
    governors: kinds.TextAxis = [None]
    freqs_khz: kinds.PositiveAxis = [None]
    kv_quantizations: kinds.TextAxis = [None]
    parameters: dict[kinds.ParameterName, kinds.ParameterAxis] | None = None
    backend: kinds.Text | None = None
    repetitions: kinds.Positive | None = None
    warmup: kinds.Natural | None = None
    flash_attention: kinds.FlashAttention | None = None
    sample_power: kinds.Flag | None = None
    sample_hz: kinds.Rate | None = None
    prepare: PrepareSection | None = None
    tags: kinds.Texts = []
    extra: dict[str, Any] | None = None
    priority: kinds.Whole | None = None
    command: kinds.Argv | None = None
    metrics: kinds.Metrics | None = None
    stage: kinds.Texts = []
    exclude: list[dict[str, Any]] | None = None
    table: kinds.Text | None = Field(None, alias="from")


class Document(Section):
    """A whole config, less its devices, models and matrix, which are checked one by one."""

    experiment: kinds.Experiment | None = None
    output_dir: kinds.Text | None = None
    devices: Any = None
    models: Any = None
    defaults: Any = None
    matrix: Any = None
    policy: PolicySection = PolicySection()
    accept: dict[str, kinds.Text] | None = None
    allow_holes: kinds.Flag | None = None
    points_per_job: kinds.Positive | None = None
    controller_shares_local: kinds.Flag | None = None
    # what `snakemake --config device=pi5 limit=3` leaves here: narrows the plan (M-140)
    device: kinds.Texts = []
    model: kinds.Texts = []
    mode: kinds.Texts = []
    limit: kinds.Positive | None = None


def known_keys(model: type[BaseModel], loc: tuple[int | str, ...] = ("",)) -> list[str]:
    """The keys allowed in the mapping that holds the last part of ``loc``."""
    for part in loc[:-1]:
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        inner = list(_sections_in(field.annotation)) if field else []
        if not inner:
            return []
        model = inner[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _sections_in(kind: Any) -> Iterator[type[Section]]:
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for inner in get_args(kind):
        yield from _sections_in(inner)


def json_schema(backends: tuple[str, ...], aliases: dict[str, str]) -> dict[str, Any]:
    """JSON Schema (2020-12) of a whole config. ``aliases``: other spellings of a block's keys."""
    sections: list[type[BaseModel]] = [Document, ModelSection, BlockSection, *SECTION_OF.values()]
    _, made = models_json_schema([(section, "validation") for section in sections])
    defs: dict[str, Any] = made["$defs"]
    document, block = defs.pop("Document"), defs["BlockSection"]
    block["properties"] |= {alias: block["properties"][name] for alias, name in aliases.items()}
    device: dict[str, Any] = {"type": ["object", "null"], "properties": {}, "additionalProperties": False}
    for section in SECTION_OF.values():
        device["properties"] |= defs.pop(section.__name__)["properties"]
    device["properties"] |= {name: {"type": ["object", "null"]} for name in backends}
    defs["DeviceSection"] = {"description": DeviceSection.__doc__, **device}
    a_block = {"$ref": "#/$defs/BlockSection"}
    a_model = {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/ModelSection"}]}
    a_device = {"$ref": "#/$defs/DeviceSection"}
    document["properties"] |= {
        "devices": {"type": "object", "minProperties": 1, "additionalProperties": a_device},
        "models": {"type": "object", "additionalProperties": a_model},
        "defaults": a_block,
        "matrix": {"anyOf": [a_block, {"type": "array", "minItems": 1, "items": a_block}]},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": "A Sidewinder lab",
        "required": ["devices", "matrix"],
        "$defs": defs,
    }
