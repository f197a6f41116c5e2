"""An order: the place of each point in its device's queue, decided before anything runs.

``interleaved`` (default) goes in rounds: each arm is visited once per round, and both the order of arms within a round
and that of the points within an arm are a shuffle by the seed. Identical systems were called different in 45–50 % of
comparisons whose arms ran one after the other, and in 1–8 % of interleaved ones: neighbours share the machine's mood.
``config`` keeps the order of the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sidewinder.errors import ConfigError
from sidewinder.model import Point

INTERLEAVED = "interleaved"
CONFIG = "config"


def arm(point: Point) -> str:
    """What a comparison puts side by side: the subject that is measured, whatever its settings and shapes."""
    return "\0".join((point.backend, point.mode, point.model or "", point.quantization or "", point.model_sha256 or ""))


def positions(
    run_ids_by_device: Mapping[str, Sequence[str]],
    by: str,
    seed: int,
    arms: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """The position (0, 1, …) of every run id among those of its device. ``arms`` says which arm a run id belongs to;
    without it each run id is its own, and there is one round."""
    if by not in (INTERLEAVED, CONFIG):
        raise ConfigError("must be interleaved or config", key="order", value=by)
    result: dict[str, int] = {}
    for device, run_ids in run_ids_by_device.items():
        order = run_ids if by == CONFIG else _interleaved(device, run_ids, seed, arms or {})
        for position, run_id in enumerate(order):
            result[run_id] = position
    return result


def _interleaved(device: str, run_ids: Sequence[str], seed: int, arms: Mapping[str, str]) -> list[str]:
    by_arm: dict[str, list[str]] = {}
    for run_id in run_ids:
        by_arm.setdefault(arms.get(run_id, run_id), []).append(run_id)
    place: list[tuple[int, bytes, str]] = []
    for name, members in by_arm.items():
        members.sort(key=lambda run_id: _draw(seed, device, run_id))
        for round_, run_id in enumerate(members):
            place.append((round_, _draw(seed, device, f"{round_} {name}"), run_id))
    place.sort()
    return [run_id for _, _, run_id in place]


def _draw(seed: int, device: str, what: str) -> bytes:
    """A number by lot that depends on nothing but its words: the same in every Python, whatever else is planned."""
    return hashlib.sha256(f"{seed}\0{device}\0{what}".encode()).digest()
