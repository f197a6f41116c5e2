"""A pod of a config: what a device of kind kubernetes says of it, checked as a whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import yaml

from sidewinder import ids, quantity
from sidewinder.errors import ConfigError
from sidewinder.model import Device

from . import tables
from .positions import Path
from .problems import Problems
from .schema import KubernetesSection

# mlsys' names for the same thing
ALIASES: Final = {"cpu_limit": "cpu", "memory_limit": "memory", "create_pod": "create"}
_WITH_REQUEST: Final = ("cpu", "memory", "ephemeral_storage")
_SOURCES: Final = ("host_path", "pvc", "config_map", "empty_dir")


def check(
    section: KubernetesSection,
    settings: dict[str, Any],
    path: Path,
    files: Sequence[str],
    base_dir: str,
    problems: Problems,
) -> None:
    """What only several keys together can tell; ``settings`` are brought to their one spelling on the way."""
    image, pod = settings.get("image"), settings.get("pod")
    if not (image or pod):
        problems.add("a device of kind kubernetes needs an `image`, or the name of a running `pod`", path)
    if settings.get("create") is False and not pod:
        problems.add("`create: false` needs the name of the `pod` that is there", (*path, "create"))
    if settings.get("create") and not image:
        problems.add("to create a pod its `image` must be known", (*path, "create"))
    if settings.pop("kubectl", None):
        hint = "name the cluster by `kubeconfig` and `context`"
        problems.add("no kubectl is run, its API server is spoken to directly", (*path, "kubectl"), hint=hint)
    for key in ("env_from_secrets", "resources", "volumes", "host_mounts"):
        if not settings.get(key):
            settings.pop(key, None)
    if section.python and section.python.startswith("~"):
        problems.add("no login shell is there to expand `~`: write an absolute path or a name", (*path, "python"))
    if not image:
        # `cpu`, `memory` and `node_name` of such a pod say what it must be: another one is refused when it is met
        for key in ("resources", "volumes", "host_mounts", "pod_template"):
            if settings.get(key):
                problems.add(f"`{key}` is for a pod that we make; without `image` none is made", (*path, key))
    _check_requests(settings, path, problems)
    _check_volumes(section, path, problems)
    if section.node_name and "kubernetes.io/hostname" in (section.node_selector or {}):
        problems.add("the node is named here and in node_selector: give one of them", (*path, "node_name"))
    if section.pod_template is not None:
        template = _template(section.pod_template, (*path, "pod_template"), files, base_dir, problems)
        if template:
            settings["pod_template"] = template
        else:
            settings.pop("pod_template", None)


def _check_requests(settings: dict[str, Any], path: Path, problems: Problems) -> None:
    for name in _WITH_REQUEST:
        limit, request = settings.get(name), settings.get(f"{name}_request")
        if limit is None or request is None:
            continue
        if quantity.parse(request) > quantity.parse(limit):
            problems.add(f"is more than the limit ({limit}): it could never be had", (*path, f"{name}_request"))
        elif quantity.parse(request) == quantity.parse(limit):
            del settings[f"{name}_request"]  # what it is without being said: the same measurement, the same run id


def _check_volumes(section: KubernetesSection, path: Path, problems: Problems) -> None:
    paths = [mount.mount_path.rstrip("/") for mount in section.host_mounts or ()]
    for index, volume in enumerate(section.volumes or ()):
        where = (*path, "volumes", index)
        given = [source for source in _SOURCES if getattr(volume, source) is not None]
        if len(given) != 1:
            problems.add(f"a volume has one source of {', '.join(_SOURCES)}; given are {len(given)}", where)
        if volume.type is not None and volume.host_path is None:
            problems.add("`type` is for a host_path", (*where, "type"))
        if volume.sub_path and (volume.sub_path.startswith("/") or ".." in volume.sub_path.split("/")):
            problems.add("must be relative, without `..`", (*where, "sub_path"))
        paths.append(volume.mount_path.rstrip("/"))
    for twice in sorted({one for one in paths if paths.count(one) > 1}):
        problems.add(f"two volumes are mounted at {twice or '/'}", (*path, "volumes"))


# -- the template


def _template(
    given: str | dict[str, Any], path: Path, files: Sequence[str], base_dir: str, problems: Problems
) -> dict[str, Any] | None:
    """A pod's ``metadata`` and ``spec`` as a person wrote them; a file's content counts, not its name."""
    found: Any = given
    if isinstance(given, str):
        try:
            found = _read(tables.find(os.path.expanduser(given), base_dir, files))
        except ConfigError as error:
            problems.add(error.rule, path, value=error.value)
            return None
    if not isinstance(found, Mapping):
        problems.add("must be a pod: a mapping with `spec`, and `metadata` if need be", path)
        return None
    kind, version = found.get("kind", "Pod"), found.get("apiVersion", "v1")
    if (kind, version) != ("Pod", "v1"):
        problems.add(f"must be a v1 Pod, this is a {version} {kind}", path)
    odd = sorted(set(found) - {"apiVersion", "kind", "metadata", "spec"})
    if odd:
        problems.add(f"a pod has no {odd[0]!r}: metadata and spec are merged, nothing else", path)
    for key in ("metadata", "spec"):
        if not isinstance(found.get(key, {}), Mapping):
            problems.add(f"`{key}` must be a mapping", path)
            return None
    spec = found.get("spec", {})
    for key in ("containers", "initContainers", "volumes"):
        listed = spec.get(key, [])
        named = isinstance(listed, list) and all(isinstance(one, Mapping) and one.get("name") for one in listed)
        if not named:
            problems.add(f"`spec.{key}` must be a list, each with a name", path)
            return None
    try:
        return {
            key: json.loads(json.dumps(found[key], allow_nan=False)) for key in ("metadata", "spec") if found.get(key)
        }
    except (TypeError, ValueError) as error:
        problems.add(f"holds something that JSON cannot say: {error}", path)
        return None


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as stream:
            documents = [one for one in yaml.safe_load_all(stream) if one is not None]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror or error}", value=path) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"is no YAML: {str(error).splitlines()[0]}", value=path) from None
    if len(documents) != 1:
        raise ConfigError(f"must hold one pod, it holds {len(documents)} documents", value=path)
    return documents[0]


# -- several of them


def check_twins(devices: Iterable[Device], problems: Problems) -> None:
    """Two devices with one pod would measure one machine under two names, and each would recreate the other's pod."""
    first: dict[tuple[Any, ...], str] = {}
    for device in devices:
        if device.kind != "kubernetes":
            continue
        settings = device.settings
        name = settings.get("pod") or ids.pod_name(device.id)
        key = (settings.get("kubeconfig"), settings.get("context"), settings.get("namespace"), name)
        if key in first:
            problems.add(
                f"has the same pod as {first[key]!r} ({name})",
                ("devices", device.id, *(["pod"] if settings.get("pod") else [])),
                hint="give one of them another `pod`",
            )
        first.setdefault(key, device.id)
