"""A watched engine: what it told, and when each of its points was over."""

from __future__ import annotations

import time
from typing import Any

from engine.helpers_engine import Told


class Watched(Told):
    """Remembers when each point was over, by the wall clock, as the ledger tells when its link was missed."""

    def __init__(self) -> None:
        super().__init__()
        self.done_s: dict[Any, float] = {}

    def on_done(self, key: Any, outcome: str, failure: Any) -> None:
        self.done_s[key] = time.time()
        super().on_done(key, outcome, failure)
