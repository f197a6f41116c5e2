"""The layout: where everything lies below a run folder. Pure: it makes paths and touches nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one experiment (``output_dir`` of the lab); paths are plain strings because there are many."""

    root: str

    @property
    def plan(self) -> str:
        return os.path.join(self.root, "plan.json")

    @property
    def journal(self) -> str:
        return os.path.join(self.root, "journal.jsonl")

    @property
    def retries(self) -> str:
        return os.path.join(self.root, "retries.jsonl")

    @property
    def schedule(self) -> str:
        return os.path.join(self.root, "schedule.json")

    @property
    def lock(self) -> str:
        return os.path.join(self.root, "controller.lock")

    @property
    def summary(self) -> str:
        return os.path.join(self.root, "summary")

    def record(self, device: str, run_id: str) -> str:
        return f"{self.root}/records/{device}/{run_id}.json"

    def marker(self, device: str, run_id: str) -> str:
        """Only for Snakemake: newer than the record while the point is open (docs/design.md §7)."""
        return f"{self.root}/records/{device}/{run_id}.json.open"

    def raw(self, device: str, run_id: str) -> str:
        return f"{self.root}/raw/{device}/{run_id}"

    def superseded(self, device: str, run_id: str, stamp: str) -> str:
        return f"{self.root}/superseded/{device}/{run_id}.{stamp}.json"

    def shard(self, device: str, shard: str) -> str:
        return f"{self.root}/shards/{device}/{shard}.json"

    def log(self, device: str, run_id: str) -> str:
        return f"{self.root}/logs/{device}/{run_id}.log"

    def table(self, device: str) -> str:
        return f"{self.root}/summary/tables/{device}.parquet"
