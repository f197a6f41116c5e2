"""A GPU as ``nvidia-smi`` describes it (M-41), and which of them a run can see; what it does not tell is absent."""

import os
import re

from .processes import SpawnError, run_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT_S = 20.0  # without persistence mode the driver is loaded first
GPU_FIELDS = (
    ("index", "index"),
    ("uuid", "uuid"),
    ("name", "name"),
    ("driver", "driver_version"),
    ("compute_capability", "compute_cap"),
    ("memory_total_MiB", "memory.total"),
    ("pcie_gen", "pcie.link.gen.current"),
    ("pcie_width", "pcie.link.width.current"),
    ("enforced_power_limit_W", "enforced.power.limit"),
    ("power_limit_W", "power.limit"),
    ("ecc_mode", "ecc.mode.current"),
    ("mig_mode", "mig.mode.current"),
    ("sm_clock_max_MHz", "clocks.max.sm"),
    ("mem_clock_max_MHz", "clocks.max.mem"),
    ("persistence_mode", "persistence_mode"),
)
_TEXT_FIELDS = frozenset(
    ("uuid", "name", "driver", "compute_capability", "ecc_mode", "mig_mode", "persistence_mode"),
)
_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field to query')


def gpu_facts(environment: "Mapping[str, str]", program: str = "nvidia-smi") -> "dict[str, Any]":
    """``gpus`` (those that a run with this environment sees), ``gpu`` (the first one's name), and ``gpus_unknown``:
    why one of them could not be told. Empty where there is no such program."""
    gpus, why = ask_gpus(program)
    seen = visible(gpus, environment)
    if seen is None:
        why = (
            f"CUDA_VISIBLE_DEVICES={environment.get('CUDA_VISIBLE_DEVICES')} counts in an order that only CUDA knows, "
            "and the GPUs differ: name them by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    facts = {}  # type: dict[str, Any]
    if seen or (seen is None and gpus):
        facts["gpus"] = gpus if seen is None else seen
    if seen and "name" in seen[0]:
        facts["gpu"] = seen[0]["name"]
    if why:
        facts["gpus_unknown"] = why
    return facts


def ask_gpus(program: str = "nvidia-smi") -> "tuple[list[dict[str, Any]], str | None]":
    """All GPUs, and why there are none where the program itself says so. A field that this driver does not know is
    left out: it would refuse the whole question."""
    fields = list(GPU_FIELDS)
    while fields:
        query = ",".join(field for _name, field in fields)
        argv = [program, "--query-gpu=" + query, "--format=csv,noheader,nounits"]
        try:
            returncode, out, err = run_command(argv, timeout_s=LIMIT_S)
        except SpawnError:
            return [], None
        text = (bytes(out.head) + b"\n" + bytes(err.head)).decode("utf-8", "replace")
        if returncode == 0:
            return parse_gpus(bytes(out.head).decode("utf-8", "replace"), fields), None
        refused = set(_UNKNOWN_FIELD.findall(text))
        if not refused.intersection(field for _name, field in fields):
            said = " ".join(text.split()) or "nothing"
            how = f"did not answer within {LIMIT_S:g} s" if returncode is None else f"ended with {returncode}"
            return [], f"{os.path.basename(program)} {how}: {said[:300]}"
        fields = [pair for pair in fields if pair[1] not in refused]
    return [], None


def parse_gpus(text: str, fields: "Sequence[tuple[str, str]]" = GPU_FIELDS) -> "list[dict[str, Any]]":
    """Lines of numbers and names without units. ``[N/A]``, ``[Not Supported]``, ``[Unknown Error]`` are no value."""
    gpus = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(fields):
            continue
        gpu = {}  # type: dict[str, Any]
        for (name, _field), value in zip(fields, values):
            if not value or value.startswith("[") or value in ("N/A", "ERR!"):
                continue
            try:
                gpu[name] = value if name in _TEXT_FIELDS else float(value) if "." in value else int(value)
            except ValueError:
                continue
        gpus.append(gpu)
    return gpus


def visible(gpus: "Sequence[dict[str, Any]]", environment: "Mapping[str, str]") -> "list[dict[str, Any]] | None":
    """Those that CUDA shows a program with this environment, in its order; None: it cannot be told from here.

    ``nvidia-smi`` shows them all, in the order of the bus. CUDA's own order puts the fastest first, which is the same
    where all are alike. The first word that names none ends the list, as in CUDA.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return list(gpus)
    alike = len({gpu.get("name") for gpu in gpus}) <= 1 or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    seen = []  # type: list[dict[str, Any]]
    for word in (part.strip() for part in wanted.split(",")):
        if word.isdigit():
            if int(word) >= len(gpus):
                break
            if not alike:
                return None
            found = [gpus[int(word)]]
        elif word.startswith("MIG-"):
            parent = word[4:].partition("/")[0]  # "MIG-GPU-<uuid>/<instance>/..." of old drivers names its GPU
            found = [gpu for gpu in gpus if gpu.get("uuid") == parent] or list(gpus)
            if len(found) > 1:
                return None
        elif word.startswith("GPU-"):
            found = [gpu for gpu in gpus if str(gpu.get("uuid", "")).startswith(word)]
        else:
            found = []
        if len(found) != 1:
            break
        if found[0] not in seen:
            seen.append(found[0])
    return seen
