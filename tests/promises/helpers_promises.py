"""What the tests of the promises share: a batch of campaigns with printed seeds, and a point that says what it does."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.helpers_engine import command
from sidewinder.model import Device
from sim.helpers_sim import batch

PATIENCE_S = 60.0
Property = Callable[[str, object], None]


def campaigns(record_property: Property, *must_meet: str, count: int = 100) -> Counter[str]:
    """Fresh seeds, each campaign held against every promise; these kinds of bad luck must have been among them."""
    injected, _ = batch(count, record_property)
    missed = [kind for kind in must_meet if not injected[kind]]
    assert not missed, f"{count} campaigns met no {missed}"
    return injected


def here(folder: Path, name: str = "local", **more: Any) -> Device:
    """This machine as a device, with an agent's folder of its own."""
    return Device(name, "local", settings={"state_dir": str(folder / f"agent-{name}")}, **more)


class Diary:
    """A file in which real runs write, one word at a time, when they begin and when they end."""

    def __init__(self, folder: Path) -> None:
        self.path, self.go = folder / "diary", folder / "go"

    def point(
        self, name: str, *, waits: bool = False, sleep_s: float = 0.0, code: int = 0, **more: Any
    ) -> dict[str, Any]:
        text = (
            "import os, sys, time\n"
            f"fd = os.open({str(self.path)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
            f"os.write(fd, b'+{name} ')\n"
            f"while {waits} and not os.path.exists({str(self.go)!r}): time.sleep(0.01)\n"
            f"time.sleep({sleep_s})\n"
            f"print('n=1')\n"
            f"os.write(fd, b'-{name} ')\n"
            f"sys.exit({code})\n"
        )
        return command(sys.executable, "-S", "-c", text, metrics={"n": r"n=(\d)"}, parameters={"name": name}, **more)

    @property
    def words(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []

    def began(self) -> Counter[str]:
        return Counter(word[1:] for word in self.words if word[0] == "+")

    def most_at_once(self) -> int:
        now = most = 0
        for word in self.words:
            now += 1 if word[0] == "+" else -1
            most = max(most, now)
        return most


def until(condition: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.01)


def lines(root: Path, name: str = "retries.jsonl") -> list[dict[str, Any]]:
    path = root / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def records(root: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in (root / "records").rglob("*.json")}
