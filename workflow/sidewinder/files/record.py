"""A whole record, for those who read many keys of it (report, CLI): the pydantic model of its JSON.

``docs/records.md`` explains every key. Who only asks for a status imports ``records`` and pays for no pydantic.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sidewinder.model import FailureClass


class _Lenient(BaseModel):
    """A later version's keys are ignored, so that old tools read new records."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class RecordFailure(_Lenient):
    failure_class: str = Field(alias="class")
    message: str = ""
    evidence: dict[str, Any] = {}


class Attempt(_Lenient):
    n: int
    start_utc: str | None = None
    end_utc: str | None = None
    outcome: str | None = None
    failure_class: str | None = Field(default=None, alias="class")
    error: str | None = None
    evidence: dict[
        str, Any
    ] = {}  # of a run that is not trusted: how long its machine slept, by how much its clock was set


class Order(_Lenient):
    seed: int | None = None
    by: str | None = None
    position: int | None = None
    predecessor: str | None = None


class Clock(_Lenient):
    offset_s: float
    bound_s: float | None = None


class Record(_Lenient):
    """One record; keys that are absent were not known."""

    schema_version: Literal[1]
    run_id: str
    status: Literal["ok", "failed"]
    experiment: str = ""
    campaign: str = ""
    lab_version: str | None = None
    error: str | None = None
    warnings: list[str] = []
    tags: list[str] = []
    timestamp_utc: str | None = None
    duration_s: float | None = None
    identity: dict[str, Any] = {}
    device: dict[str, Any] = {}
    backend: dict[str, Any] = {}
    workload: dict[str, Any] = {}
    knobs: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    samples: dict[str, Any] = {}
    telemetry: dict[str, Any] = {}
    conditions: dict[str, Any] = {}
    raw: dict[str, Any] = {}
    failure: RecordFailure | None = None
    attempts: list[Attempt] = []
    order: Order | None = None
    clock: Clock | None = None
    versions: dict[str, str] = {}
    moved_to: str | None = None
    accepted: str | None = None

    @property
    def is_hole(self) -> bool:
        return self.failure is not None and self.failure.failure_class == FailureClass.NOT_ATTEMPTED

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape again: keys as on disk, no ``None``."""
        return self.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
